/* Values of an activation: float32 as it is, and bf16, which is its upper half. */

#ifndef PHALANX_VALUES_H
#define PHALANX_VALUES_H

#include <stdint.h>
#include <string.h>

#define JOIN2(a, b) a##_##b
#define JOIN(a, b) JOIN2(a, b)
#define NAMED(name) JOIN(name, KIND)

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

#endif
