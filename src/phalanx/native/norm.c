/* Batch norm in training with what follows it: an addition, a relu. Each pass over an activation does all that it can.

   Pixels are rows of `channels` values (channels_last), float32 or bf16; sums are float32 within a part of the rows and
   double beyond, always over the same parts, so that the number of threads does not change a result. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PARTS = 64, LEAST_ROWS = 128, TOGETHER = 4 };

static inline int64_t parts_of(int64_t rows) {
    int64_t parts = rows / LEAST_ROWS;
    return parts < 1 ? 1 : parts > MOST_PARTS ? MOST_PARTS : parts;
}

/* What the parts' two sums of a channel come to. */
static inline void add_up(const float *sums, int64_t parts, int64_t channels, int64_t c, double *first, double *second) {
    *first = *second = 0;
    for (int64_t part = 0; part < parts; part++) {
        *first += sums[part * 2 * channels + c];
        *second += sums[(part * 2 + 1) * channels + c];
    }
}

static inline float from_f32(float value) { return value; }
static inline float to_f32(float value) { return value; }

static inline float from_bf16(uint16_t value) {
    uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, 4);
    return result;
}

static inline uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return value != value ? 0x7fc0 : rounded;
}

#define KIND f32
#define VALUE float
#define FROM from_f32
#define TO to_f32
#include "norm_kind.h"

#define KIND bf16
#define VALUE uint16_t
#define FROM from_bf16
#define TO to_bf16
#include "norm_kind.h"
