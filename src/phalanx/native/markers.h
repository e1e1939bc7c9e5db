/* What the markers of a JPEG say, before anything is decoded. */

#ifndef PHALANX_MARKERS_H
#define PHALANX_MARKERS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { TAIL = 65536 }; /* bytes at the end of a file in which its end marker is looked for */

struct header {
    int32_t height, width, orientation, components; /* as stored; height 0: not for us */
    int32_t is_progressive, has_one_scan;
    uint8_t ids[3]; /* of the components */
    size_t scan;    /* where the first scan's header is */
};

static unsigned two_bytes(const uint8_t *at) { return at[0] << 8 | at[1]; }

static int is_exif(const uint8_t *data, size_t bytes) { return bytes >= 6 && !memcmp(data, "Exif\0\0", 6); }

/* The orientation 1 … 8 in the EXIF data of an APP1 segment; 1 where it says none, 0 where it is not well-formed. */
static int find_orientation(const uint8_t *data, size_t bytes) {
    int orientation = 0;
    if (bytes < 14) return 0;
    const uint8_t *tiff = data + 6;
    size_t length = bytes - 6;
    int little = !memcmp(tiff, "II*", 4);
    if (!little && memcmp(tiff, "MM\0*", 4)) return 0;
#define SHORT(at) (little ? (unsigned)(tiff[at] | tiff[(at) + 1] << 8) : two_bytes(tiff + (at)))
#define LONG(at) (little ? SHORT(at) | SHORT((at) + 2) << 16 : SHORT(at) << 16 | SHORT((at) + 2))
    size_t folder = LONG(4);
    if (folder + 2 > length || folder + 2 + 12 * (size_t)SHORT(folder) > length) return 0;
    for (size_t entry = folder + 2, left = SHORT(folder); left; left--, entry += 12)
        if (SHORT(entry) == 0x0112) {
            if (orientation || SHORT(entry + 2) != 3 || LONG(entry + 4) != 1) return 0; /* one short number */
            orientation = SHORT(entry + 8);
            if (orientation < 1 || orientation > 8) return 0;
        }
    return orientation ? orientation : 1;
#undef SHORT
#undef LONG
}

/* Whether the end marker is there. Compressed data cannot hold it, so what follows the first scan's header may. */
static int is_whole(const uint8_t *data, size_t bytes, size_t scan) {
    size_t least = bytes > TAIL ? bytes - TAIL : 0;
    if (least < scan) least = scan;
    for (size_t at = bytes; at-- > least + 1;)
        if (data[at] == 0xd9 && data[at - 1] == 0xff) return 1;
    return 0;
}

/* Looks at the markers up to the first scan. Height 0 for all but whole files of 8 bits in one or three components,
 * coded by Huffman. */
static struct header look(const uint8_t *data, size_t bytes, int orient) {
    const struct header unusual = {.orientation = 1};
    struct header header = unusual;
    int seen_exif = 0;
    if (bytes < 4 || data[0] != 0xff || data[1] != 0xd8) return unusual;
    for (size_t at = 2; at + 4 <= bytes;) {
        if (data[at] != 0xff) return unusual;
        int marker = data[at + 1];
        if (marker == 0xff) { /* filling */
            at++;
            continue;
        }
        size_t length = two_bytes(data + at + 2);
        const uint8_t *content = data + at + 4;
        if (marker < 0xc0 || (marker >= 0xd0 && marker <= 0xd9)) return unusual;
        if (length < 2 || at + 2 + length > bytes) return unusual;
        if (marker <= 0xc2 && length >= 8) {
            if (header.height || content[0] != 8 || (content[5] != 1 && content[5] != 3)) return unusual;
            header.height = two_bytes(content + 1);
            header.width = two_bytes(content + 3);
            header.components = content[5];
            header.is_progressive = marker == 0xc2;
            if (length < 8 + 3 * (size_t)header.components) return unusual;
            for (int i = 0; i < header.components; i++) header.ids[i] = content[6 + 3 * i];
        } else if (marker < 0xd0 && marker != 0xc4 && marker != 0xc8) {
            return unusual;
        } else if (marker == 0xe1 && orient && is_exif(content, length - 2)) {
            header.orientation = seen_exif++ ? 0 : find_orientation(content, length - 2);
            if (!header.orientation) return unusual;
        } else if (marker == 0xda) {
            header.scan = at;
            header.has_one_scan = !header.is_progressive && content[0] == header.components;
            return header.height && header.width && is_whole(data, bytes, at) ? header : unusual;
        }
        at += 2 + length;
    }
    return unusual;
}

/* Notes which coefficients of which components have all their bits after a progressive scan with this header. */
static void note_scan(const uint8_t *content, size_t bytes, const struct header *header, uint64_t known[3]) {
    int count = bytes ? content[0] : 0;
    if (bytes < 4 + 2 * (size_t)count || content[3 + 2 * count] & 15) return;
    int first = content[1 + 2 * count], last = content[2 + 2 * count];
    for (int k = first; k <= last && k < 64; k++)
        for (int i = 0; i < count; i++)
            for (int c = 0; c < header->components; c++)
                if (header->ids[c] == content[1 + 2 * i]) known[c] |= (uint64_t)1 << k;
}

static int is_complete(const struct header *header, const uint64_t known[3]) {
    for (int c = 0; c < header->components; c++)
        if (known[c] != UINT64_MAX) return 0;
    return 1;
}

/* Goes through all scans, to the end marker. Whether whatever libjpeg may find wrong is found before its first row, or
 * is a damaged value, which is no error to it: nothing but the end may follow the only scan of a sequential file. And
 * whether no scan is missing: libjpeg then smooths, and at the edges of a view otherwise than within an image. */
static int is_sound(const uint8_t *data, size_t bytes, struct header header, int64_t max_scans) {
    int64_t scans = 0;
    uint64_t known[3] = {0};
    for (size_t at = header.scan; at + 1 < bytes;) {
        const uint8_t *ff = memchr(data + at, 0xff, bytes - 1 - at);
        if (!ff) return 0;
        int marker = ff[1];
        at = ff + 1 - data;
        if (marker == 0xff) continue; /* filling */
        at++;
        if (marker == 0 || (marker & 0xf8) == 0xd0) continue; /* stuffing, or a restart */
        if (marker == 0xd9) return scans && (!header.is_progressive || is_complete(&header, known));
        if (marker < 0xc0 || marker == 0xd8 || at + 2 > bytes) return 0;
        size_t length = two_bytes(data + at);
        if (length < 2 || length > bytes - at) return 0;
        if (marker == 0xda && ++scans > max_scans) return 0;
        if (header.has_one_scan && (marker != 0xda || scans > 1)) return 0;
        if (marker == 0xda) note_scan(data + at + 2, length - 2, &header, known);
        at += length;
    }
    return 0;
}

#endif
