/* The k largest magnitudes of a gradient. src/phalanx/exchange/compress/top_k.py is its caller and its twin.
 *
 * The bits of a float without its sign, read as an integer, order magnitudes. So the k-th largest is found digit by
 * digit: count how often each leading digit occurs, keep the digit in which the k-th falls, go on with the next.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { DIGITS = 1 << 11 };

static uint32_t magnitude(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits & 0x7fffffffu;
}

/* Magnitude of the k-th largest value; *ties is how many of that very magnitude belong to the k largest. */
static uint32_t find_kth(const float *values, size_t count, size_t k, size_t *ties) {
    static const int shifts[3] = {20, 10, 0}, widths[3] = {11, 10, 10};
    uint32_t kth = 0;
    for (int step = 0; step < 3; step++) {
        uint32_t mask = (1u << widths[step]) - 1, above = step ? ~0u << shifts[step - 1] : 0;
        size_t counts[DIGITS] = {0};
        for (size_t i = 0; i < count; i++) {
            uint32_t bits = magnitude(values[i]);
            counts[(bits >> shifts[step]) & mask] += (bits & above) == kth;
        }
        uint32_t digit = mask;
        for (; counts[digit] < k; digit--) k -= counts[digit];
        kth |= digit << shifts[step];
    }
    *ties = k;
    return kth;
}

/* Moves the k largest values out: their indices ascending, 0 in their place. Of equal magnitudes the first are taken. */
void top_k_take(float *values, size_t count, size_t k, uint32_t *indices, float *taken) {
    size_t ties, found = 0;
    uint32_t kth = find_kth(values, count, k, &ties);
    for (size_t i = 0; i < count && found < k; i++) {
        uint32_t bits = magnitude(values[i]);
        if (bits < kth || (bits == kth && ties == 0)) continue;
        ties -= bits == kth;
        indices[found] = (uint32_t)i;
        taken[found++] = values[i];
        values[i] = 0.0f;
    }
}
