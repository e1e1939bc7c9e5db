/* 2-bit gradient compression as MXNet defines it. src/phalanx/exchange/compress/two_bit.py is its caller and its twin.
 *
 * Plain C that GCC and Clang turn into vector code at -O3: no branch in the first loop, no dependence in the second.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { BLOCK = 256 }; /* values whose codes wait in the first-level cache until they are packed */

static void quantize(const float *restrict gradient, float *restrict residual, float threshold, size_t count,
                     uint8_t *restrict codes) {
    for (size_t i = 0; i < count; i++) {
        float sum = residual[i] + gradient[i];
        int up = sum >= threshold, down = sum <= -threshold;
        residual[i] = sum - (up ? threshold : down ? -threshold : 0.0f);
        codes[i] = (uint8_t)(up ? 3 : down ? 2 : 0);
    }
}

static void pack(const uint8_t *restrict codes, size_t bytes, uint8_t *restrict packed) {
    for (size_t i = 0; i < bytes; i++)
        packed[i] = (uint8_t)(codes[4 * i] << 6 | codes[4 * i + 1] << 4 | codes[4 * i + 2] << 2 | codes[4 * i + 3]);
}

/* Writes (count + 3) / 4 bytes; the codes beyond count are 0. */
void two_bit_encode(const float *gradient, float *residual, float threshold, size_t count, uint8_t *packed) {
    uint8_t codes[BLOCK];
    size_t done = 0;
    for (; done + BLOCK <= count; done += BLOCK) {
        quantize(gradient + done, residual + done, threshold, BLOCK, codes);
        pack(codes, BLOCK / 4, packed + done / 4);
    }
    memset(codes, 0, sizeof codes);
    quantize(gradient + done, residual + done, threshold, count - done, codes);
    pack(codes, (count - done + 3) / 4, packed + done / 4);
}

/* The four values of each possible byte: 4 KB, which stay in the first-level cache. */
static void fill_table(float threshold, float table[256][4]) {
    const float values[4] = {0.0f, 0.0f, -threshold, threshold};
    for (int byte = 0; byte < 256; byte++)
        for (int i = 0; i < 4; i++) table[byte][i] = values[(byte >> (6 - 2 * i)) & 3];
}

void two_bit_decode(const uint8_t *restrict packed, float threshold, size_t count, float *restrict out) {
    float table[256][4];
    fill_table(threshold, table);
    size_t whole = count / 4;
    for (size_t i = 0; i < whole; i++) memcpy(out + 4 * i, table[packed[i]], sizeof table[0]);
    for (size_t i = 4 * whole; i < count; i++) out[i] = table[packed[whole]][i & 3];
}

void two_bit_decode_add(const uint8_t *restrict packed, float threshold, size_t count, float *restrict out) {
    float table[256][4];
    fill_table(threshold, table);
    size_t whole = count / 4;
    for (size_t i = 0; i < whole; i++)
        for (int k = 0; k < 4; k++) out[4 * i + k] += table[packed[i]][k];
    for (size_t i = 4 * whole; i < count; i++) out[i] += table[packed[whole]][i & 3];
}
