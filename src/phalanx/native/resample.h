/* Antialiased resizing of 8-bit images, bit for bit as Pillow does it: first along rows, then along columns, with
 * weights in 22-bit fixed point and a result rounded to 8 bits after each.
 *
 * An image is fed row by row, so that a decoder's rows are used while they are in the first-level cache, and only the
 * part of it that the box needs: see `columns` and `rows`.
 */

#ifndef PHALANX_RESAMPLE_H
#define PHALANX_RESAMPLE_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

enum {
    PRECISION = 22,         /* bits of a weight behind the point */
    HALF = 1 << (PRECISION - 1),
    SLACK = 64,             /* bytes that may be read or written beyond the end of a row */
    BLOCK = 32,             /* bytes of a row that `down` works on at a time */
    TOGETHER = 4,           /* outputs that `across` works on at a time */
    MAX_INPUTS = 1 << 24,  /* along one side, padding included: float holds every whole number up to here */
};

/* A box may overshoot the edge by a rounding error; that much is clipped, not padded. */
static const double TOLERANCE_PIXELS = 1e-3;

/* Where the box lies along one side of the image, and what is outside of the image there. */
struct side {
    int length;          /* of the image */
    int before, after;   /* pixels of padding */
    float start, end;    /* of the box, in the padded image */
};

/* Each output is a weighted sum of `taps` inputs from `first` on, of those that are needed: [from, to). */
struct axis {
    int outputs, taps, from, to;
    int *first;
    int32_t *weights;
};

struct view {
    double top, left, height, width;
};

struct resizer {
    int channels, size, reflect;
    struct side across_side, down_side;
    struct axis across, down;
    int16_t *spread;        /* the weights of `across`, as vector code wants them */
    uint8_t *lines;         /* the rows after the first pass, from `first_line` of the padded image on */
    int first_line, num_lines;
    size_t stride;          /* bytes from one line to the next */
    uint8_t *padded;        /* one row of input with its padding */
};

static double triangle(double x) {
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static double cubic(double x) { /* Keys' kernel, a = -1/2 */
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

static int overhang(double pixels) { return pixels > TOLERANCE_PIXELS ? (int)ceil(pixels) : 0; }

/* 0 where the box is no box, or too far outside to be meant. */
static int place(struct side *side, int length, double start, double extent) {
    if (!(extent > 0 && extent < MAX_INPUTS && fabs(start) < MAX_INPUTS)) return 0;
    side->length = length;
    side->before = overhang(-start);
    side->after = overhang(start + extent - length);
    if ((int64_t)length + side->before + side->after > MAX_INPUTS) return 0;
    double end = start + extent + side->before, whole = length + side->before + side->after;
    start += side->before;
    side->start = (float)(start > 0 ? start : 0);
    side->end = (float)(end < whole ? end : whole);
    return side->end > side->start;
}

/* The inputs that have a weight for an output: [*low, *high). */
static void reach(double centre, double support, int inputs, int *low, int *high) {
    *low = (int)(centre - support + 0.5);
    *high = (int)(centre + support + 0.5);
    if (*low < 0) *low = 0;
    if (*high > inputs) *high = inputs;
}

/* Weights for `outputs` pixels; `reverse` mirrors them; `even` makes taps come in pairs. 0 where memory ran out. */
static int weigh(struct axis *axis, const struct side *side, int outputs, int bicubic, int reverse,
                 int even) {
    int inputs = side->length + side->before + side->after, low, high, most = 1;
    double scale = (double)(side->end - side->start) / outputs, stretch = scale > 1.0 ? scale : 1.0;
    double support = (bicubic ? 2.0 : 1.0) * stretch, narrow = 1.0 / stretch;
    double (*kernel)(double) = bicubic ? cubic : triangle;
    /* Counted from near the box, as resize.py does after it has cut that part out: so both round alike. */
    int base = (int)floor(side->start) - (int)ceil(support) - 1;
    if (base < 0) base = 0;
    double start = side->start - base;
    inputs -= base;
    axis->outputs = outputs;
    axis->from = inputs;
    axis->to = 0;
    for (int i = 0; i < outputs; i++) {
        reach(start + (i + 0.5) * scale, support, inputs, &low, &high);
        if (high - low > most) most = high - low;
        if (low < axis->from) axis->from = low;
        if (high > axis->to) axis->to = high;
    }
    axis->taps = even ? most + (most & 1) : most;
    axis->first = calloc((size_t)outputs + TOGETHER, sizeof *axis->first);
    axis->weights = calloc((size_t)outputs * axis->taps, sizeof *axis->weights);
    double *exact = malloc(sizeof *exact * (size_t)most);
    if (!axis->first || !axis->weights || !exact) {
        free(exact);
        return 0;
    }
    for (int i = 0; i < outputs; i++) {
        double centre = start + (i + 0.5) * scale, total = 0.0;
        reach(centre, support, inputs, &low, &high);
        for (int k = 0; k < high - low; k++) total += exact[k] = kernel((k + low - centre + 0.5) * narrow);
        /* Weights of 0 must not reach far beyond the end: at most one input of them is read there. */
        int first = low + axis->taps > axis->to ? axis->to - axis->taps : low;
        if (first < axis->from) first = axis->from;
        int at = reverse ? outputs - 1 - i : i;
        int32_t *weights = axis->weights + (size_t)at * axis->taps + (low - first);
        axis->first[at] = first - axis->from;
        for (int k = 0; k < high - low; k++) {
            double weight = total != 0.0 ? exact[k] / total : exact[k];
            weights[k] = (int32_t)(weight * (1 << PRECISION) + (weight < 0 ? -0.5 : 0.5));
        }
    }
    axis->from += base;
    axis->to += base;
    free(exact);
    return 1;
}

static inline uint8_t clipped(int32_t sum) {
    sum >>= PRECISION;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* One channel after the other; a pixel of the input has `bytes` bytes. */
static void across_samples(const struct axis *axis, int channels, int bytes, const uint8_t *row, uint8_t *out) {
    for (int i = 0; i < axis->outputs; i++) {
        const uint8_t *pixels = row + (size_t)bytes * axis->first[i];
        const int32_t *w = axis->weights + (size_t)i * axis->taps;
        for (int c = 0; c < channels; c++) {
            int32_t sum = HALF;
            for (int k = 0; k < axis->taps; k++) sum += w[k] * pixels[k * bytes + c];
            *out++ = clipped(sum);
        }
    }
}

#ifdef __AVX2__
/* Multiplying 16-bit numbers and adding the products of neighbours is one instruction, so a weight is split in two of
 * 11 bits, and two taps of two outputs are added at a time. Weights lie as that needs them: for each two outputs and
 * each two taps the upper halves (four times those of the first output, four times those of the second), then the
 * lower. */
enum { LOW_BITS = 11, WEIGHTS = 32 /* in `spread` for two outputs and two taps */ };

static int16_t *spread_weights(const struct axis *axis) {
    int outputs = (axis->outputs + TOGETHER - 1) / TOGETHER * TOGETHER;
    int16_t *spread = calloc((size_t)outputs * axis->taps * WEIGHTS / 4, sizeof *spread), *at = spread;
    if (!spread) return NULL;
    for (int i = 0; i < axis->outputs; i += 2)
        for (int k = 0; k < axis->taps; k += 2, at += WEIGHTS)
            for (int n = 0; n < WEIGHTS / 2; n++) {
                int output = i + n / 8, tap = k + n % 2;
                int32_t weight = output < axis->outputs ? axis->weights[(size_t)output * axis->taps + tap] : 0;
                at[n] = (int16_t)(weight >> LOW_BITS);
                at[n + WEIGHTS / 2] = (int16_t)(weight & ((1 << LOW_BITS) - 1));
            }
    return spread;
}

/* `pair` picks the bytes of two pixels and makes them 16 bits wide, channel by channel. */
static inline void add_pair(__m256i pixels, __m256i pair, const int16_t *weights, __m256i *high, __m256i *low) {
    const __m256i *w = (const __m256i *)weights;
    __m256i words = _mm256_shuffle_epi8(pixels, pair);
    *high = _mm256_add_epi32(*high, _mm256_madd_epi16(words, _mm256_loadu_si256(w)));
    *low = _mm256_add_epi32(*low, _mm256_madd_epi16(words, _mm256_loadu_si256(w + 1)));
}

static inline __attribute__((always_inline)) __m256i two_outputs(const uint8_t *one, const uint8_t *other, int taps,
                                                                 const int16_t *weights) {
    const __m256i first_pair =
        _mm256_broadcastsi128_si256(_mm_set_epi8(-1, 7, -1, 3, -1, 6, -1, 2, -1, 5, -1, 1, -1, 4, -1, 0));
    const __m256i second_pair =
        _mm256_broadcastsi128_si256(_mm_set_epi8(-1, 15, -1, 11, -1, 14, -1, 10, -1, 13, -1, 9, -1, 12, -1, 8));
    __m256i high = _mm256_setzero_si256(), low = _mm256_set1_epi32(HALF);
    for (int k = 0; k < taps; k += 4, one += 16, other += 16, weights += 2 * WEIGHTS) {
        __m256i pixels = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)one)),
                                                 _mm_loadu_si128((const __m128i *)other), 1);
        add_pair(pixels, first_pair, weights, &high, &low);
        if (k + 2 < taps) add_pair(pixels, second_pair, weights + WEIGHTS, &high, &low);
    }
    return _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(high, LOW_BITS), low), PRECISION);
}

/* Three channels in four bytes. Always inlined, so that the common numbers of taps are unrolled. */
static inline __attribute__((always_inline)) void across_pixels(const struct axis *axis, const int16_t *spread,
                                                                int taps, const uint8_t *row, uint8_t *out) {
    const __m128i without_fourth = _mm_set_epi8(-1, -1, -1, -1, 14, 13, 12, 10, 9, 8, 6, 5, 4, 2, 1, 0);
    const __m256i in_order = _mm256_set_epi32(0, 0, 0, 0, 5, 1, 4, 0);
    for (int i = 0; i < axis->outputs; i += TOGETHER, out += 3 * TOGETHER, spread += taps * WEIGHTS) {
        const uint8_t *from[TOGETHER];
        for (int n = 0; n < TOGETHER; n++) from[n] = row + 4 * (size_t)axis->first[i + n];
        __m256i first = two_outputs(from[0], from[1], taps, spread);
        __m256i second = two_outputs(from[2], from[3], taps, spread + taps / 2 * WEIGHTS);
        __m256i words = _mm256_packus_epi32(first, second); /* in each half: output 0 or 1, then 2 or 3 */
        __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(words, words), in_order);
        __m128i pixels = _mm_shuffle_epi8(_mm256_castsi256_si128(bytes), without_fourth);
        _mm_storeu_si128((__m128i *)out, pixels); /* four bytes too many, where the next pixels come */
    }
}


#endif

static void resizer_free(struct resizer *r) {
    free(r->across.first);
    free(r->across.weights);
    free(r->spread);
    free(r->down.first);
    free(r->down.weights);
    free(r->lines);
    free(r->padded);
    memset(r, 0, sizeof *r);
}

static int is_padded(const struct side *side) { return side->before || side->after; }

/* `channels` of the input, 3 being fed as 4 bytes a pixel. 0 where the view is senseless or memory ran out; *r is to be
 * freed in any case. */
static int resizer_init(struct resizer *r, int height, int width, int channels, struct view view, int size, int bicubic,
                        int reflect, int reverse_rows, int reverse_columns) {
    memset(r, 0, sizeof *r);
    r->channels = channels;
    r->size = size;
    r->reflect = reflect;
    if (!place(&r->across_side, width, view.left, view.width) || !place(&r->down_side, height, view.top, view.height))
        return 0;
    if (!weigh(&r->across, &r->across_side, size, bicubic, reverse_columns, channels == 3)) return 0;
    if (!weigh(&r->down, &r->down_side, size, bicubic, reverse_rows, 0)) return 0;
#ifdef __AVX2__
    if (channels == 3 && !(r->spread = spread_weights(&r->across))) return 0;
#endif
    int end = r->down.to;
    r->first_line = r->down.from;
    if (reflect && is_padded(&r->down_side)) { /* a row may be needed only where it is mirrored */
        if (r->down_side.before < r->first_line) r->first_line = r->down_side.before;
        if (r->down_side.before + height > end) end = r->down_side.before + height;
    }
    r->num_lines = end - r->first_line;
    r->stride = ((size_t)size * channels + BLOCK - 1) / BLOCK * BLOCK + BLOCK; /* to spare: see across_pixels */
    r->lines = malloc(r->stride * ((size_t)r->num_lines + 1));
    size_t bytes = channels == 3 ? 4 : channels; /* of a pixel */
    if (is_padded(&r->across_side)) r->padded = calloc((size_t)(r->across.to - r->across.from) * bytes + SLACK, 1);
    return r->lines && (r->padded || !is_padded(&r->across_side));
}

/* The pixel of the image that stands at `at` of the padded image; -1: black. */
static int inside(const struct side *side, int at, int reflect) {
    at -= side->before;
    if (at >= 0 && at < side->length) return at;
    if (!reflect) return -1;
    if (side->length == 1) return 0;
    int period = 2 * (side->length - 1);
    at = ((at % period) + period) % period;
    return at < side->length ? at : period - at;
}

/* The pixels of one side that the result depends on: [*from, *to). */
static void needed(const struct side *side, const struct axis *axis, int reflect, int *from, int *to) {
    *from = axis->from - side->before;
    *to = axis->to - side->before;
    if (reflect && (*from < 0 || *to > side->length)) {
        *from = 0;
        *to = side->length;
        return;
    }
    *from = *from < 0 ? 0 : *from > side->length ? side->length : *from;
    *to = *to > side->length ? side->length : *to < *from ? *from : *to;
}

static void columns(const struct resizer *r, int *from, int *to) {
    needed(&r->across_side, &r->across, r->reflect, from, to);
}

static void rows(const struct resizer *r, int *from, int *to) {
    needed(&r->down_side, &r->down, r->reflect, from, to);
}

#ifdef __AVX2__
static void across(const struct resizer *r, const uint8_t *row, uint8_t *out) {
    int taps = r->across.taps;
    if (r->channels != 3) across_samples(&r->across, r->channels, r->channels, row, out);
    else if (taps == 2) across_pixels(&r->across, r->spread, 2, row, out);
    else if (taps == 4) across_pixels(&r->across, r->spread, 4, row, out);
    else across_pixels(&r->across, r->spread, taps, row, out);
}
#else
static void across(const struct resizer *r, const uint8_t *row, uint8_t *out) {
    across_samples(&r->across, r->channels, r->channels == 3 ? 4 : r->channels, row, out);
}
#endif

/* One row of the image, `row` beginning with its pixel `first`; SLACK bytes behind what is needed can be read. */
static void feed(struct resizer *r, int number, const uint8_t *row, int first) {
    size_t bytes = r->channels == 3 ? 4 : r->channels;
    uint8_t *line = r->lines + r->stride * (number + r->down_side.before - r->first_line);
    if (!r->padded) {
        across(r, row + bytes * (r->across.from - first), line);
        return;
    }
    for (int i = r->across.from; i < r->across.to; i++) {
        int pixel = inside(&r->across_side, i, r->reflect);
        if (pixel >= 0) memcpy(r->padded + bytes * (i - r->across.from), row + bytes * (pixel - first), bytes);
    }
    across(r, r->padded, line);
}

/* The lines above and below the image, once all rows that are needed were fed. */
static void pad_lines(struct resizer *r) {
    size_t bytes = (size_t)r->size * r->channels;
    for (int at = r->down.from; at < r->down.to; at++) {
        int number = inside(&r->down_side, at, r->reflect);
        uint8_t *line = r->lines + r->stride * (at - r->first_line);
        if (number < 0) memset(line, 0, bytes);
        else if (number != at - r->down_side.before)
            memcpy(line, r->lines + r->stride * (number + r->down_side.before - r->first_line), bytes);
    }
}

#ifdef __AVX2__
static inline __attribute__((always_inline)) void down_block(const uint8_t *lines, size_t stride, const int32_t *w,
                                                             int taps, uint8_t *out) {
    __m256i sums[4];
    for (int i = 0; i < 4; i++) sums[i] = _mm256_set1_epi32(HALF);
    for (int k = 0; k < taps; k++, lines += stride)
        for (int i = 0; i < 4; i++) {
            __m256i eight = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(lines + 8 * i)));
            sums[i] = _mm256_add_epi32(sums[i], _mm256_mullo_epi32(eight, _mm256_set1_epi32(w[k])));
        }
    for (int i = 0; i < 4; i++) sums[i] = _mm256_srai_epi32(sums[i], PRECISION);
    /* Packing works in halves of 16 bytes; the last step puts their quarters in order. */
    __m256i bytes = _mm256_packus_epi16(_mm256_packus_epi32(sums[0], sums[1]), _mm256_packus_epi32(sums[2], sums[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0));
    _mm256_storeu_si256((__m256i *)out, bytes);
}
#else
static inline __attribute__((always_inline)) void down_block(const uint8_t *restrict lines, size_t stride,
                                                             const int32_t *restrict w, int taps,
                                                             uint8_t *restrict out) {
    int32_t sums[BLOCK];
    for (int i = 0; i < BLOCK; i++) sums[i] = HALF;
    for (int k = 0; k < taps; k++, lines += stride)
        for (int i = 0; i < BLOCK; i++) sums[i] += w[k] * lines[i];
    for (int i = 0; i < BLOCK; i++) out[i] = clipped(sums[i]);
}
#endif

static void down(const struct resizer *r, int number, uint8_t *out) {
    int taps = r->down.taps;
    const int32_t *w = r->down.weights + (size_t)number * taps;
    const uint8_t *lines = r->lines + r->stride * (r->down.first[number] + r->down.from - r->first_line);
    size_t bytes = (size_t)r->size * r->channels, done = 0;
    uint8_t last[BLOCK];
    for (; done + BLOCK <= bytes; done += BLOCK) {
        if (taps == 2) down_block(lines + done, r->stride, w, 2, out + done);
        else if (taps == 3) down_block(lines + done, r->stride, w, 3, out + done);
        else if (taps == 4) down_block(lines + done, r->stride, w, 4, out + done);
        else down_block(lines + done, r->stride, w, taps, out + done);
    }
    if (done == bytes) return;
    down_block(lines + done, r->stride, w, taps, last);
    memcpy(out + done, last, bytes - done);
}

/* Writes (size, size, channels × copies). `transpose` swaps rows and columns. */
static void finish(struct resizer *r, int copies, int transpose, uint8_t *out) {
    size_t size = r->size, channels = r->channels, pixel = channels * copies;
    uint8_t *line = r->lines + r->stride * r->num_lines; /* the one that only weights of 0 see */
    pad_lines(r);
    for (size_t y = 0; y < size; y++) {
        if (copies == 1 && !transpose) {
            down(r, y, out + y * size * pixel);
            continue;
        }
        down(r, y, line);
        for (size_t x = 0; x < size; x++)
            for (int copy = 0; copy < copies; copy++)
                memcpy(out + (transpose ? x * size + y : y * size + x) * pixel + copy * channels, line + x * channels,
                       channels);
    }
}

#endif
