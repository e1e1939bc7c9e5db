/* CRC-32C (Castagnoli), the checksum of TFRecord. src/phalanx/data/crc32c.py is its caller and its twin.
 *
 * x86 has an instruction for it since SSE 4.2, ARM with its CRC extension; elsewhere eight tables take eight bytes at
 * a time.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE4_2__) && defined(__x86_64__)
#include <nmmintrin.h>
#define EIGHT(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define ONE(crc, byte) _mm_crc32_u8((crc), (byte))
#elif defined(__ARM_FEATURE_CRC32) && defined(__aarch64__)
#include <arm_acle.h>
#define EIGHT(crc, word) __crc32cd((crc), (word))
#define ONE(crc, byte) __crc32cb((crc), (byte))
#endif

#ifdef EIGHT

static uint32_t update(uint32_t crc, const uint8_t *data, size_t size) {
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, data, sizeof word);
        crc = EIGHT(crc, word);
    }
    for (; size; data++, size--) crc = ONE(crc, *data);
    return crc;
}

#else

static uint32_t tables[8][256];

__attribute__((constructor)) static void fill(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
        tables[0][byte] = crc;
    }
    for (int i = 1; i < 8; i++)
        for (int byte = 0; byte < 256; byte++)
            tables[i][byte] = tables[i - 1][byte] >> 8 ^ tables[0][tables[i - 1][byte] & 255];
}

static uint32_t update(uint32_t crc, const uint8_t *data, size_t size) {
    for (; size >= 8; data += 8, size -= 8) {
        uint32_t low = crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                              (uint32_t)data[3] << 24);
        crc = tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^ tables[4][low >> 24] ^
              tables[3][data[4]] ^ tables[2][data[5]] ^ tables[1][data[6]] ^ tables[0][data[7]];
    }
    for (; size; data++, size--) crc = crc >> 8 ^ tables[0][(crc ^ *data) & 255];
    return crc;
}

#endif

/* The checksum of data[start : start + size]. The start comes apart, so that a caller need not cut its buffer. */
uint32_t crc32c(const uint8_t *data, size_t start, size_t size) {
    return ~update(~0u, data + start, size);
}
