/* The common kind of JPEG, decoded without libjpeg: baseline, one scan, colours at full, half or quarter resolution.
 *
 * It makes the same pixels as libjpeg-turbo, bit for bit, in two thirds of the time: one look at the bits ahead gives
 * a coefficient with its value, and blocks outside of the view are passed over without values. Anything else, and
 * anything damaged, is refused, and libjpeg has its turn.
 */

#ifndef PHALANX_BASELINE_H
#define PHALANX_BASELINE_H

#include "huffman.h"
#include "idct.h"
#include "resample.h"

enum {
    MAX_COMPONENTS = 3,
    MAX_SAMPLES = 1 << 22, /* of a component that are kept; of more than that, libjpeg keeps only a few rows */
    EDGE = 32,              /* bytes to spare on either side of a row */
};

struct component {
    int h, v;                /* samples of it in an MCU: 8h × 8v */
    int id, table, dc, ac;   /* numbers of its tables */
    int width, height;       /* in samples */
    uint8_t *memory, *plane; /* of the MCUs that are needed; `plane` begins at the first sample */
    size_t stride;
    int left, top;           /* the sample that `plane` begins with */
};

struct baseline {
    int height, width, num_components, interval; /* MCUs between restart markers; 0: there are none */
    int is_jfif, adobe;                          /* `adobe`: its colour transform, -1: it says nothing */
    int has_table[4], has_dc[2], has_ac[2];
    struct component components[MAX_COMPONENTS];
    const uint8_t *scan; /* in the file */
    size_t scan_bytes;
    uint8_t *clean; /* the scan without stuffing, and PADDING */
    size_t clean_bytes;
    size_t *restarts; /* where in `clean` a restart marker stood */
    int num_restarts;
    int16_t tables[4][64]; /* from here on nothing has to be 0 at first */
    struct huffman dc[2], ac[2];
};

static int read_tables(struct baseline *b, const uint8_t *at, const uint8_t *end) {
    while (at < end) {
        int wide = *at >> 4, number = *at & 15;
        at++;
        if (wide > 1 || number > 3 || end - at < 64 << wide) return 0;
        for (int i = 0; i < 64; i++, at += 1 + wide)
            b->tables[number][natural[i]] = (int16_t)(wide ? at[0] << 8 | at[1] : at[0]);
        b->has_table[number] = 1;
    }
    return 1;
}

static int read_huffman(struct baseline *b, const uint8_t *at, const uint8_t *end) {
    while (at < end) {
        if (end - at < 17) return 0;
        int is_ac = *at >> 4, number = *at & 15, symbols = 0;
        for (int i = 1; i <= 16; i++) symbols += at[i];
        if (is_ac > 1 || number > 1 || symbols > 256 || end - at < 17 + symbols) return 0;
        if (!build_huffman((is_ac ? b->ac : b->dc) + number, at + 1, at + 17, !is_ac)) return 0;
        (is_ac ? b->has_ac : b->has_dc)[number] = 1;
        at += 17 + symbols;
    }
    return 1;
}

static int read_frame(struct baseline *b, const uint8_t *at, size_t bytes) {
    if (b->num_components || bytes < 6 || at[0] != 8) return 0;
    b->height = at[1] << 8 | at[2];
    b->width = at[3] << 8 | at[4];
    b->num_components = at[5];
    if ((at[5] != 1 && at[5] != 3) || bytes != 6 + 3 * (size_t)at[5] || !b->height || !b->width) return 0;
    for (int i = 0; i < b->num_components; i++) {
        struct component *c = b->components + i;
        c->id = at[6 + 3 * i];
        c->h = at[7 + 3 * i] >> 4;
        c->v = at[7 + 3 * i] & 15;
        c->table = at[8 + 3 * i];
        if (c->h < 1 || c->h > 4 || c->v < 1 || c->v > 4 || c->table > 3) return 0;
    }
    struct component *c = b->components;
    if (b->num_components == 1) {
        c->h = c->v = 1; /* an MCU of a scan of one component is one block */
        return 1;
    }
    int sampling = c->h << 4 | c->v, colours = c[1].h << 12 | c[1].v << 8 | c[2].h << 4 | c[2].v;
    return (sampling == 0x11 || sampling == 0x21 || sampling == 0x22) && colours == 0x1111;
}

static int read_scan(struct baseline *b, const uint8_t *at, size_t bytes) {
    int n = b->num_components;
    if (!n || bytes != 4 + 2 * (size_t)n || at[0] != n || memcmp(at + 1 + 2 * n, "\0\x3f", 3)) return 0;
    for (int i = 0; i < n; i++) {
        struct component *c = b->components + i;
        c->dc = at[2 + 2 * i] >> 4;
        c->ac = at[2 + 2 * i] & 15;
        if (at[1 + 2 * i] != c->id || c->dc > 1 || c->ac > 1) return 0;
        if (!b->has_dc[c->dc] || !b->has_ac[c->ac] || !b->has_table[c->table]) return 0;
    }
    return 1;
}

/* Whether libjpeg would take three components for luminance and two colours. */
static int is_ycbcr(const struct baseline *b) {
    const struct component *c = b->components;
    if (b->is_jfif) return 1;
    if (b->adobe >= 0) return b->adobe == 1;
    return c[0].id == 1 && c[1].id == 2 && c[2].id == 3;
}

/* Reads everything before the compressed data. `data` is a whole JPEG: `look` has gone through its markers before. */
static int read_headers(struct baseline *b, const uint8_t *data, size_t bytes) {
    b->adobe = -1;
    for (size_t at = 2; at + 4 <= bytes;) {
        int marker = data[at + 1];
        if (data[at] != 0xff || marker == 0xff) return 0;
        size_t length = (size_t)data[at + 2] << 8 | data[at + 3];
        if (length < 2 || at + 2 + length > bytes) return 0;
        const uint8_t *content = data + at + 4, *end = data + at + 2 + length;
        size_t size = length - 2;
        int fine = 1;
        if (marker == 0xdb) fine = read_tables(b, content, end);
        else if (marker == 0xc4) fine = read_huffman(b, content, end);
        else if (marker == 0xc0 || marker == 0xc1) fine = read_frame(b, content, size);
        else if (marker == 0xdd) fine = size == 2 && (b->interval = content[0] << 8 | content[1], 1);
        else if (marker == 0xe0) b->is_jfif |= size >= 14 && !memcmp(content, "JFIF", 5);
        else if (marker == 0xee && size >= 12 && !memcmp(content, "Adobe", 5)) b->adobe = content[11];
        else if (marker == 0xda) {
            b->scan = end;
            b->scan_bytes = bytes - (end - data);
            return read_scan(b, content, size) && (b->num_components == 1 || is_ycbcr(b));
        } else fine = (marker & 0xf0) == 0xe0 || marker == 0xfe; /* for applications, or a comment */
        if (!fine) return 0;
        at += 2 + length;
    }
    return 0;
}

/* Takes the zeros out that follow each 0xff in compressed data, and the restart markers, whose places are kept. */
static int unstuff(struct baseline *b, int num_intervals) {
    const uint8_t *at = b->scan, *end = b->scan + b->scan_bytes;
    if ((size_t)num_intervals > b->scan_bytes) return 0;
    b->clean = malloc(b->scan_bytes + PADDING);
    b->restarts = malloc(sizeof *b->restarts * (size_t)num_intervals);
    if (!b->clean || !b->restarts) return 0;
    uint8_t *out = b->clean;
    for (;;) {
        const uint8_t *ff = memchr(at, 0xff, end - at);
        if (!ff || ff + 1 == end) return 0; /* no end marker */
        memcpy(out, at, ff - at);
        out += ff - at;
        int marker = ff[1];
        at = ff + 2;
        if (marker == 0) *out++ = 0xff;
        else if ((marker & 0xf8) == 0xd0) {
            if (!b->interval || (marker & 7) != (b->num_restarts & 7) || b->num_restarts + 1 >= num_intervals) return 0;
            b->restarts[b->num_restarts++] = out - b->clean;
        } else if (marker == 0xd9) break;
        else return 0;
    }
    b->clean_bytes = out - b->clean;
    memset(out, 0, PADDING);
    return b->interval ? b->num_restarts == num_intervals - 1 : 1;
}

/* Room for the samples of MCU columns [from, to) and rows [first, last). */
static int make_plane(struct baseline *b, struct component *c, int from, int to, int first, int last) {
    const struct component *most = b->components;
    c->width = (b->width * c->h + most->h - 1) / most->h;
    c->height = (b->height * c->v + most->v - 1) / most->v;
    c->left = 8 * c->h * from;
    c->top = 8 * c->v * first;
    c->stride = 8 * (size_t)c->h * (to - from) + 2 * EDGE;
    c->memory = malloc(c->stride * 8 * c->v * (last - first));
    c->plane = c->memory + EDGE;
    return c->memory != NULL;
}

struct reading {
    struct bits bits;
    int last[MAX_COMPONENTS];
    int number, left; /* of the interval between restart markers, and MCUs left in it */
    size_t end;       /* of the interval in `clean` */
};

static void start_interval(struct reading *r, const struct baseline *b, int number) {
    memset(r, 0, sizeof *r);
    r->number = number;
    r->left = b->interval ? b->interval : INT32_MAX;
    r->bits.next = b->clean + (number ? b->restarts[number - 1] : 0);
    r->end = number < b->num_restarts ? b->restarts[number] : b->clean_bytes;
}

/* Whether no more bits were used than there are. */
static int is_within(const struct reading *r, const struct baseline *b) {
    return 8 * (r->bits.next - b->clean) - r->bits.count <= 8 * (int64_t)r->end;
}

static inline __attribute__((always_inline)) int next_mcu(struct reading *r, const struct baseline *b) {
    if (!r->left) {
        if (!is_within(r, b)) return 0;
        start_interval(r, b, r->number + 1);
    }
    r->left--;
    return r->bits.next <= b->clean + b->clean_bytes + 8; /* what one MCU takes is less than PADDING */
}

/* Passes over MCUs of which nothing is needed. */
static int pass_mcus(struct reading *r, const struct baseline *b, int count) {
    for (; count; count--) {
        if (!next_mcu(r, b)) return 0;
        struct bits bits = r->bits;
        for (int i = 0; i < b->num_components; i++) {
            const struct component *c = b->components + i;
            for (int n = c->h * c->v; n; n--)
                if (!pass_block(&bits, b->dc + c->dc, b->ac + c->ac, r->last + i)) return 0;
        }
        r->bits = bits;
    }
    return 1;
}

struct waiting { /* for another block to be transformed with */
    _Alignas(32) int16_t coefficients[2][COEFFICIENTS];
    struct block blocks[2];
    int count;
    __m256i first_rows; /* of all blocks so far */
};

static void transform_waiting(struct waiting *w) {
    if (w->count) invert_blocks(w->blocks, w->blocks + w->count - 1, &w->first_rows);
    w->count = 0;
}

/* One MCU into the planes, `x` and `y` counted from where these begin. Only the first `wanted` components are kept. */
static inline int read_mcu(struct reading *r, struct baseline *b, int wanted, int x, int y, struct waiting *w) {
    if (!next_mcu(r, b)) return 0;
    struct bits bits = r->bits;
    for (int i = 0; i < b->num_components; i++) {
        struct component *c = b->components + i;
        const struct huffman *dc = b->dc + c->dc, *ac = b->ac + c->ac;
        for (int n = 0; n < c->h * c->v; n++) {
            if (i >= wanted) {
                if (!pass_block(&bits, dc, ac, r->last + i)) return 0;
                continue;
            }
            int16_t *coefficients = w->coefficients[w->count];
            for (int k = 0; k < 64; k += 16) _mm256_store_si256((__m256i *)(coefficients + k), _mm256_setzero_si256());
            int end = read_block(&bits, dc, ac, r->last + i, coefficients);
            if (end < 0) return 0;
            size_t row = 8 * ((size_t)y * c->v + (n >> (c->h - 1))), column = 8 * ((size_t)x * c->h + (n & (c->h - 1)));
            struct block *block = w->blocks + w->count;
            *block = (struct block){coefficients, b->tables[c->table], c->plane + c->stride * row + column, c->stride};
            if (end == END) fill_block(block);
            else if (++w->count == 2) transform_waiting(w);
        }
    }
    r->bits = bits;
    return 1;
}

/* Decodes the MCUs of columns [from, to) and rows [first, last) into planes. */
static int read_planes(struct baseline *b, int wanted, int mcus_across, int from, int to, int first, int last) {
    struct reading r;
    struct waiting w;
    w.count = 0;
    w.first_rows = _mm256_setzero_si256();
    /* Restart markers allow to begin in the middle. */
    int start = first * mcus_across + from, number = b->interval ? start / b->interval : 0;
    int mcu = number * b->interval;
    start_interval(&r, b, number);
    for (int y = first; y < last; y++) {
        if (!pass_mcus(&r, b, y * mcus_across + from - mcu)) return 0;
        for (int x = from; x < to; x++)
            if (!read_mcu(&r, b, wanted, x - from, y - first, &w)) return 0;
        mcu = y * mcus_across + to;
    }
    transform_waiting(&w);
    return is_within(&r, b) && is_in_range(w.first_rows);
}

/* Repeats the samples at the ends of each row: the filter reads beyond them. */
static void mend_edges(struct component *c, int rows, int samples) {
    int end = c->width - c->left < samples ? c->width - c->left : samples;
    for (int y = 0; y < rows; y++) {
        uint8_t *row = c->plane + c->stride * y;
        row[-1] = row[0];
        row[end] = row[end - 1];
    }
}

static const uint8_t *row_of(const struct component *c, int row) {
    row = row < 0 ? 0 : row >= c->height ? c->height - 1 : row;
    return c->plane + c->stride * (row - c->top);
}

/* Samples [from, to) of a colour at twice its own resolution across, `from` being even: mixed with their neighbours. */
static void widen_colour(const struct component *c, int row, int from, int to, int is_half_high, uint16_t *sums,
                         uint16_t *restrict out) {
    int count = (to - from + 1) / 2;
    const uint8_t *near = row_of(c, is_half_high ? row / 2 : row) + (from / 2 - c->left);
    if (!is_half_high) {
        for (int i = 0; i < count; i++)
            out[i] = (uint16_t)((3 * near[i] + near[i - 1] + 1) >> 2 | ((3 * near[i] + near[i + 1] + 2) >> 2) << 8);
        return;
    }
    const uint8_t *far = row_of(c, row % 2 ? row / 2 + 1 : row / 2 - 1) + (from / 2 - c->left);
    uint16_t *sum = sums + 1;
    for (int i = -1; i <= count; i++) sum[i] = (uint16_t)(3 * near[i] + far[i]);
    for (int i = 0; i < count; i++)
        out[i] = (uint16_t)((3 * sum[i] + sum[i - 1] + 8) >> 4 | ((3 * sum[i] + sum[i + 1] + 7) >> 4) << 8);
}

/* first × a + second × b, the factors having 16 bits behind the point. */
static inline __m256i mixed(__m256i a, __m256i b, int first, int second) {
    __m256i w = factors(first, second), rounding = _mm256_set1_epi32(1 << 15);
    __m256i low = _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), w), rounding);
    __m256i high = _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), w), rounding);
    return _mm256_packs_epi32(_mm256_srai_epi32(low, 16), _mm256_srai_epi32(high, 16));
}

static inline __m256i sixteen(const uint8_t *at) { return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)at)); }

/* R = Y + 1.402 Cr, G = Y - 0.34414 Cb - 0.71414 Cr, B = Y + 1.772 Cb. Whole numbers are taken out of factors that
 * would not fit into 16 bits: 1.402 = 1 + 0.402, -0.71414 = -1 + 0.28586, 1.772 = 2 - 0.228. */
static void convert(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, int count, uint8_t *out) {
    const __m256i middle = _mm256_set1_epi16(128), zero = _mm256_setzero_si256();
    for (int i = 0; i < count; i += 16) {
        __m256i luma = sixteen(y + i);
        __m256i blue = _mm256_sub_epi16(sixteen(cb + i), middle), red = _mm256_sub_epi16(sixteen(cr + i), middle);
        __m256i r = _mm256_add_epi16(_mm256_add_epi16(luma, red), mixed(red, zero, 26345, 0));
        __m256i g = _mm256_add_epi16(_mm256_sub_epi16(luma, red), mixed(blue, red, -22554, 18734));
        __m256i b = _mm256_add_epi16(luma, _mm256_add_epi16(blue, blue));
        b = _mm256_add_epi16(b, mixed(blue, zero, -14942, 0));
        __m256i rb = _mm256_packus_epi16(r, b), gx = _mm256_packus_epi16(g, g);
        __m256i rg = _mm256_unpacklo_epi8(rb, gx), bx = _mm256_unpackhi_epi8(rb, gx);
        __m256i low = _mm256_unpacklo_epi16(rg, bx), high = _mm256_unpackhi_epi16(rg, bx);
        _mm256_storeu_si256((__m256i *)(out + 4 * i), _mm256_permute2x128_si256(low, high, 0x20));
        _mm256_storeu_si256((__m256i *)(out + 4 * i + 32), _mm256_permute2x128_si256(low, high, 0x31));
    }
}

/* Feeds rows [first, last) of the image, of which columns [from, to) are needed. */
static int feed_rows(struct baseline *b, struct resizer *r, int first, int last, int from, int to) {
    struct component *c = b->components;
    if (r->channels == 1) {
        for (int row = first; row < last; row++) feed(r, row, row_of(c, row), c->left);
        return 1;
    }
    from &= ~1;
    size_t width = ((size_t)(to - from) + 3 * EDGE) / EDGE * EDGE;
    uint8_t *memory = calloc(width, 2 + 4 + 2);
    if (!memory) return 0;
    uint8_t *cb = memory, *cr = cb + width, *pixels = cr + width;
    uint16_t *sums = (uint16_t *)(pixels + 4 * width);
    for (int row = first; row < last; row++) {
        const uint8_t *blue = cb, *red = cr;
        if (c->h == 2) {
            widen_colour(c + 1, row, from, to, c->v == 2, sums, (uint16_t *)cb);
            widen_colour(c + 2, row, from, to, c->v == 2, sums, (uint16_t *)cr);
        } else {
            blue = row_of(c + 1, row) + (from - c[1].left);
            red = row_of(c + 2, row) + (from - c[2].left);
        }
        convert(row_of(c, row) + (from - c->left), blue, red, to - from, pixels);
        feed(r, row, pixels, from);
    }
    free(memory);
    return 1;
}

static int decode_baseline(struct baseline *b, const uint8_t *data, size_t bytes, struct resizer *r) {
    if (!read_headers(b, data, bytes)) return 0;
    struct component *c = b->components;
    int width = 8 * c->h, height = 8 * c->v; /* of an MCU */
    int mcus_across = (b->width + width - 1) / width, mcus_down = (b->height + height - 1) / height;
    int mcus = mcus_across * mcus_down; /* below 2^26 */
    int first, last, from, to, wanted = r->channels == 1 ? 1 : 3;
    rows(r, &first, &last);
    columns(r, &from, &to);
    if (b->num_components < wanted || first >= last || from >= to) return 0; /* a view may see nothing but padding */
    if ((int64_t)(last - first) * (to - from) > MAX_SAMPLES) return 0;
    if (!unstuff(b, b->interval ? (mcus + b->interval - 1) / b->interval : 1)) return 0;
    /* With one sample more of each colour on every side. */
    int first_mcu = first < 2 ? 0 : (first - 2) / height, last_mcu = (last + 1) / height + 1;
    int from_mcu = from < 2 ? 0 : (from - 2) / width, to_mcu = (to + 1) / width + 1;
    last_mcu = last_mcu < mcus_down ? last_mcu : mcus_down;
    to_mcu = to_mcu < mcus_across ? to_mcu : mcus_across;
    for (int i = 0; i < 2; i++)
        if (b->has_ac[i]) build_passes(b->ac + i);
    for (int i = 0; i < wanted; i++) {
        if (!make_plane(b, c + i, from_mcu, to_mcu, first_mcu, last_mcu)) return 0;
        if (c->h > c[i].h && c[i].width <= 2) return 0; /* libjpeg does not mix neighbours then */
    }
    if (!read_planes(b, wanted, mcus_across, from_mcu, to_mcu, first_mcu, last_mcu)) return 0;
    for (int i = 1; i < wanted; i++)
        mend_edges(c + i, 8 * c[i].v * (last_mcu - first_mcu), 8 * c[i].h * (to_mcu - from_mcu));
    return feed_rows(b, r, first, last, from, to);
}

/* Feeds all rows that the resizer needs. 0 where the image is left to libjpeg. */
static int read_baseline(const uint8_t *data, size_t bytes, struct resizer *r) {
    struct baseline *b = malloc(sizeof *b);
    if (!b) return 0;
    memset(b, 0, offsetof(struct baseline, tables));
    int made = decode_baseline(b, data, bytes, r);
    for (int i = 0; i < MAX_COMPONENTS; i++) free(b->components[i].memory);
    free(b->clean);
    free(b->restarts);
    free(b);
    return made;
}

#endif
