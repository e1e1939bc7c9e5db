/* 1-bit gradient compression. src/phalanx/exchange/compress/one_bit.py is its caller, its twin, and finds the means. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { BLOCK = 256 }; /* values whose signs wait in the first-level cache until they are packed */

static void split(float *restrict residual, float up, float down, size_t count, uint8_t *restrict signs) {
    for (size_t i = 0; i < count; i++) {
        float value = residual[i];
        residual[i] = value - (value >= 0.0f ? up : down);
        signs[i] = value >= 0.0f;
    }
}

static void pack(const uint8_t *restrict signs, size_t bytes, uint8_t *restrict packed) {
    for (size_t i = 0; i < bytes; i++) {
        const uint8_t *s = signs + 8 * i;
        packed[i] = (uint8_t)(s[0] << 7 | s[1] << 6 | s[2] << 5 | s[3] << 4 | s[4] << 3 | s[5] << 2 | s[6] << 1 | s[7]);
    }
}

/* Takes what is sent out of the residual. Writes (count + 7) / 8 bytes; the bits beyond count are 0. */
void one_bit_encode(float *residual, float up, float down, size_t count, uint8_t *packed) {
    uint8_t signs[BLOCK];
    size_t done = 0;
    for (; done + BLOCK <= count; done += BLOCK) {
        split(residual + done, up, down, BLOCK, signs);
        pack(signs, BLOCK / 8, packed + done / 8);
    }
    memset(signs, 0, sizeof signs);
    split(residual + done, up, down, count - done, signs);
    pack(signs, (count - done + 7) / 8, packed + done / 8);
}

static void fill_table(float up, float down, float table[256][8]) {
    for (int byte = 0; byte < 256; byte++)
        for (int i = 0; i < 8; i++) table[byte][i] = (byte >> (7 - i)) & 1 ? up : down;
}

void one_bit_decode(const uint8_t *restrict packed, float up, float down, size_t count, float *restrict out) {
    float table[256][8];
    fill_table(up, down, table);
    size_t whole = count / 8;
    for (size_t i = 0; i < whole; i++) memcpy(out + 8 * i, table[packed[i]], sizeof table[0]);
    for (size_t i = 8 * whole; i < count; i++) out[i] = table[packed[whole]][i & 7];
}

void one_bit_decode_add(const uint8_t *restrict packed, float up, float down, size_t count, float *restrict out) {
    float table[256][8];
    fill_table(up, down, table);
    size_t whole = count / 8;
    for (size_t i = 0; i < whole; i++)
        for (int k = 0; k < 8; k++) out[8 * i + k] += table[packed[i]][k];
    for (size_t i = 8 * whole; i < count; i++) out[i] += table[packed[whole]][i & 7];
}
