/* Where the wanted features of a tf.train.Example are. src/phalanx/data/example.py is its caller and its twin, and says
 * what the encoding looks like. Nothing is read beyond the message that it belongs to.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { VARINT = 0, EIGHT_BYTES = 1, LENGTH = 2, FOUR_BYTES = 5 };

typedef struct {
    const uint8_t *at, *end;
} Bytes;

static int read_varint(Bytes *in, uint64_t *value) {
    *value = 0;
    for (int shift = 0; shift < 70 && in->at < in->end; shift += 7) {
        uint8_t byte = *in->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return 1;
    }
    return 0;
}

/* The next field: its tag, and its content if it has a length (otherwise content->at is null). 0: malformed. */
static int read_field(Bytes *in, uint64_t *tag, Bytes *content) {
    uint64_t key, size;
    if (!read_varint(in, &key) || key < 8) return 0;
    *tag = key >> 3;
    content->at = NULL;
    switch (key & 7) {
    case VARINT:
        return read_varint(in, &size);
    case EIGHT_BYTES:
        size = 8;
        break;
    case FOUR_BYTES:
        size = 4;
        break;
    case LENGTH:
        if (!read_varint(in, &size)) return 0;
        content->at = in->at;
        break;
    default:
        return 0;
    }
    if (size > (uint64_t)(in->end - in->at)) return 0;
    in->at += size;
    content->end = in->at;
    return 1;
}

/* One entry of the map: a key and a value. Stores the value's place under each wanted name that is the key. */
static int read_entry(Bytes entry, const uint8_t *data, const char *names, int count, int64_t *places) {
    Bytes key = {NULL, NULL}, value = {NULL, NULL}, content;
    uint64_t tag;
    while (entry.at < entry.end) {
        if (!read_field(&entry, &tag, &content)) return 0;
        if (content.at && tag == 1) key = content;
        if (content.at && tag == 2) value = content;
    }
    if (!key.at || !value.at) return 1;
    for (int i = 0; i < count; i++, names += strlen(names) + 1) {
        size_t length = strlen(names);
        if (length != (size_t)(key.end - key.at) || memcmp(names, key.at, length)) continue;
        places[2 * i] = value.at - data;
        places[2 * i + 1] = value.end - data;
    }
    return 1;
}

/* places[2 i] and places[2 i + 1] become begin and end of the feature with the i-th name (names end with a zero each),
 * or stay as they are where there is none. Returns 0 if the message is malformed. */
int example_find(const uint8_t *data, size_t start, size_t end, const char *names, int count, int64_t *places) {
    Bytes example = {data + start, data + end}, features, entry;
    uint64_t tag;
    while (example.at < example.end) {
        if (!read_field(&example, &tag, &features)) return 0;
        if (!features.at || tag != 1) continue;
        while (features.at < features.end) {
            if (!read_field(&features, &tag, &entry)) return 0;
            if (entry.at && tag == 1 && !read_entry(entry, data, names, count, places)) return 0;
        }
    }
    return 1;
}
