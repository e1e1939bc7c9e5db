/* JPEGs decoded, cropped and resized in one go. src/phalanx/data/decode/jpeg.py is its caller.
 *
 * Only the rows and columns that the view needs are decoded; what lies above them is passed over, and decoding stops
 * below them. Most files are decoded by baseline.h. What that refuses is left to libjpeg-turbo, which also scales while
 * it decodes; and unusual or damaged files to Pillow, which reports errors.
 */

#include <setjmp.h>

#include "libjpeg.h"
#include "markers.h"
#include "resample.h"
#ifdef __AVX2__
#include "baseline.h"
#endif

enum {
    MARGIN = 8,    /* columns decoded on either side: smooth upsampling of colours looks at neighbours */
    MAX_ROWS = 8, /* read at a time */
};

enum { LEFT_TO_PILLOW, BY_LIBRARY, BY_OURSELVES }; /* what decoded an image */

struct settings {
    int32_t size, channels, bicubic, reflect;
    int32_t exact;           /* no scaling while decoding */
    int32_t orient;          /* turn images as their EXIF data says */
    int64_t max_pixels, max_scans; /* of a file; with more it is left to Pillow's side, which says so */
};

struct failure {
    struct errors errors;
    jmp_buf escape;
};

static struct library jpeg;
static int version;      /* of its interface: 62, 70 or 80; 0: there is no library */
static size_t structure; /* bytes of its struct decompress */

static void fail(struct decompress *d) { longjmp(((struct failure *)d->errors)->escape, 1); }

/* A warning means damage. What the library makes of it depends on where it starts and stops, so Pillow is to decide. */
static void take_message(struct decompress *d, int level) {
    if (level < 0) fail(d);
}

static void nothing(struct decompress *d) { (void)d; }

static int no_more_data(struct decompress *d) {
    fail(d);
    return 0;
}

static void skip_data(struct decompress *d, long count) {
    if (count <= 0) return;
    if ((size_t)count > d->source->bytes) fail(d);
    d->source->next += count;
    d->source->bytes -= count;
}

/* Everything a decompressor needs before its first function may fail. */
static void prepare(struct decompress *d, struct failure *failure, struct source *source, const uint8_t *data,
                    size_t bytes) {
    memset(d, 0, sizeof *d);
    d->errors = jpeg.std_error(&failure->errors);
    failure->errors.error_exit = fail;
    failure->errors.emit_message = take_message;
    *source = (struct source){data, bytes, nothing, no_more_data, skip_data, jpeg.resync, nothing};
}

/* What the library reports when it is asked for another version, or another size of the structure, than its own. */
static int refused_with(int asked_version, size_t asked_bytes) {
    struct decompress d;
    struct failure failure;
    struct source source;
    prepare(&d, &failure, &source, NULL, 0);
    if (setjmp(failure.escape)) return failure.errors.details.numbers[0];
    jpeg.create(&d, asked_version, asked_bytes);
    jpeg.destroy(&d);
    return -1;
}

/* Uses these functions from now on. 0 where the library is not one that we understand. */
int jpeg_bind(const struct library *functions) {
    jpeg = *functions;
    version = 0;
    int own = refused_with(0, 0), bytes;
    if (own != 62 && own != 70 && own != 80) return 0;
    bytes = refused_with(own, 0);
    if (bytes < (int)offsetof(struct decompress, rest) || bytes > (int)sizeof(struct decompress)) return 0;
    structure = bytes;
    if (refused_with(own, structure) == -1) version = own;
    return version != 0;
}

/* Does without a library. */
void jpeg_unbind(void) { version = 0; }

/* Height 0 for a file that is not for us. */
static struct header usual_header(const uint8_t *data, size_t bytes, const struct settings *settings) {
    struct header header = look(data, bytes, settings->orient);
    if ((int64_t)header.height * header.width > settings->max_pixels) header.height = header.width = 0;
    return header;
}

/* Height and width of each image, upright if EXIF counts; 0 if it is left to Pillow. */
void jpeg_sizes(int count, const uint8_t *const *data, const int64_t *bytes, const struct settings *settings,
                int64_t *sizes) {
    for (int i = 0; i < count; i++) {
        struct header header = usual_header(data[i], bytes[i], settings);
        int turned = header.orientation >= 5;
        sizes[2 * i] = turned ? header.width : header.height;
        sizes[2 * i + 1] = turned ? header.height : header.width;
    }
}

/* The view of the image as it is stored, of one that was chosen in the turned image. */
static struct view stored_view(struct view v, struct header h, int *reverse_rows, int *reverse_columns) {
    int o = h.orientation, flip = *reverse_columns;
    int mirrored = o == 2 || o == 3 || o == 7 || o == 8, upside_down = o == 3 || o == 4 || o == 6 || o == 7;
    if (o >= 5) v = (struct view){v.left, v.top, v.width, v.height};
    if (mirrored) v.left = h.width - v.left - v.width;
    if (upside_down) v.top = h.height - v.top - v.height;
    *reverse_columns = mirrored ^ (o < 5 && flip);
    *reverse_rows = upside_down ^ (o >= 5 && flip);
    return v;
}

/* The least of 1, 2, 4, 8 eighths at which the view still has the wanted size, and the image, which a view may exceed,
 * a whole pixel. Other numbers of eighths exist, but libjpeg-turbo has no vector code for them: they take longer than
 * decoding everything. */
static int eighths(struct header header, struct view view, const struct settings *settings) {
    double shorter = view.height < view.width ? view.height : view.width;
    int least = header.height < header.width ? header.height : header.width, n = 8;
    while (!settings->exact && n > 1 && shorter * (n / 2) / 8 >= settings->size && least * (n / 2) >= 8) n /= 2;
    return n;
}

struct work {
    struct resizer resizer;
    uint8_t *rows[MAX_ROWS];
    uint8_t *memory;
};

/* Reads the rows that the resizer needs. Leaves by longjmp where the library fails. */
static int read_rows(struct decompress *d, struct work *work) {
    int first, last, from, to, bytes = d->out_components;
    rows(&work->resizer, &first, &last);
    columns(&work->resizer, &from, &to);
    unsigned left = 0, width = d->out_width;
    if (from > MARGIN || to + MARGIN < (int)width) {
        left = from > MARGIN ? from - MARGIN : 0;
        width = (to + MARGIN < (int)width ? (unsigned)(to + MARGIN) : width) - left;
        jpeg.crop(d, &left, &width);
    }
    size_t stride = (size_t)width * bytes + SLACK;
    work->memory = calloc(MAX_ROWS, stride);
    if (!work->memory) return 0;
    for (int i = 0; i < MAX_ROWS; i++) work->rows[i] = work->memory + stride * i;
    if (first > 0 && jpeg.skip(d, first) != (unsigned)first) return 0;
    for (int row = first; row < last;) {
        int wanted = last - row < MAX_ROWS ? last - row : MAX_ROWS;
        int made = jpeg.read(d, work->rows, wanted);
        if (made <= 0) return 0;
        for (int i = 0; i < made; i++) feed(&work->resizer, row + i, work->rows[i], left);
        row += made;
    }
    return 1;
}

static int decode_by_library(struct decompress *d, struct header header, struct view view, int flip,
                             const struct settings *settings, struct work *work, uint8_t *out) {
    int reverse_rows = 0, reverse_columns = flip;
    if (jpeg.read_header(d, 1) != 1 || (int)d->height != header.height || (int)d->width != header.width) return 0;
    int grey = d->colours == GREY || settings->channels == 1;
    if (d->colours != GREY && d->colours != YCBCR && (d->colours != RGB || grey)) return 0;
    view = stored_view(view, header, &reverse_rows, &reverse_columns);
    int scale = eighths(header, view, settings);
    d->out_colours = grey ? GREY : RGBX;
    d->scale_num = scale;
    d->scale_denom = 8;
    d->transform = ISLOW;
    d->fancy_upsampling = 1;
    jpeg.start(d);
    double by = scale / 8.0;
    view = (struct view){view.top * by, view.left * by, view.height * by, view.width * by};
    if (!resizer_init(&work->resizer, d->out_height, d->out_width, grey ? 1 : 3, view, settings->size,
                      settings->bicubic, settings->reflect, reverse_rows, reverse_columns))
        return 0;
    if (!read_rows(d, work)) return 0;
    finish(&work->resizer, grey ? settings->channels : 1, header.orientation >= 5, out);
    return 1;
}

#ifdef __AVX2__
static int decode_by_ourselves(const uint8_t *data, size_t bytes, struct header header, struct view view, int flip,
                               const struct settings *settings, uint8_t *out) {
    struct resizer r;
    int reverse_rows = 0, reverse_columns = flip;
    int grey = header.components == 1 || settings->channels == 1;
    view = stored_view(view, header, &reverse_rows, &reverse_columns);
    if (eighths(header, view, settings) != 8) return 0;
    int made = resizer_init(&r, header.height, header.width, grey ? 1 : 3, view, settings->size, settings->bicubic,
                            settings->reflect, reverse_rows, reverse_columns) &&
               read_baseline(data, bytes, &r);
    if (made) finish(&r, grey ? settings->channels : 1, header.orientation >= 5, out);
    resizer_free(&r);
    return made;
}
#endif

static int decode_one(const uint8_t *data, size_t bytes, struct view view, int flip, const struct settings *settings,
                      uint8_t *out) {
    struct decompress d;
    struct failure failure;
    struct source source;
    struct work work;
    struct header header = usual_header(data, bytes, settings);
    if (!header.height) return LEFT_TO_PILLOW;
#ifdef __AVX2__
    if (decode_by_ourselves(data, bytes, header, view, flip, settings, out)) return BY_OURSELVES;
#endif
    if (!version || !is_sound(data, bytes, header, settings->max_scans)) return LEFT_TO_PILLOW;
    memset(&work, 0, sizeof work);
    prepare(&d, &failure, &source, data, bytes);
    volatile int made = 0; /* survives longjmp */
    if (!setjmp(failure.escape)) {
        /* A fresh one for each image: tables are carried over, and an image must not depend on the one before. */
        jpeg.create(&d, version, structure);
        d.source = &source;
        made = decode_by_library(&d, header, view, flip, settings, &work, out);
    }
    jpeg.destroy(&d);
    resizer_free(&work.resizer);
    free(work.memory);
    return made ? BY_LIBRARY : LEFT_TO_PILLOW;
}

/* The view (top, left, height, width) of each image → (size, size, channels), and what decoded it. */
void jpeg_decode(int count, const uint8_t *const *data, const int64_t *bytes, const double *views, const uint8_t *flips,
                 const struct settings *settings, uint8_t *const *out, uint8_t *made) {
    for (int i = 0; i < count; i++) {
        struct view view = {views[4 * i], views[4 * i + 1], views[4 * i + 2], views[4 * i + 3]};
        made[i] = decode_one(data[i], bytes[i], view, flips[i], settings, out[i]);
    }
}

/* Has libjpeg undo the entropy coding of each image and nothing else, to compare with. Returns how many failed. */
int jpeg_entropy(int count, const uint8_t *const *data, const int64_t *bytes) {
    volatile int failed = 0;
    if (!version) return count;
    for (volatile int i = 0; i < count; i++) {
        struct decompress d;
        struct failure failure;
        struct source source;
        prepare(&d, &failure, &source, data[i], bytes[i]);
        if (setjmp(failure.escape)) failed++;
        else {
            jpeg.create(&d, version, structure);
            d.source = &source;
            jpeg.read_header(&d, 1);
            jpeg.read_coefficients(&d);
        }
        jpeg.destroy(&d);
    }
    return failed;
}
