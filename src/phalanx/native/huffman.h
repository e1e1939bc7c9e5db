/* Huffman decoding of a baseline JPEG's blocks: one look into a table gives a symbol together with its value.
 *
 * Blocks outside of the view are skipped with another table, which has several symbols per entry and no values.
 * Damaged data is not handled here: on any error the image is left to libjpeg.
 */

#ifndef PHALANX_HUFFMAN_H
#define PHALANX_HUFFMAN_H

#include <stdint.h>
#include <string.h>

enum {
    LOOK = 10,           /* bits looked at */
    END = 128,           /* added to a block's position by the symbol that ends it */
    LAST = 63,           /* the position of a block's last coefficient */
    TOGETHER_UP_TO = 40, /* positions from which several symbols may be passed at once, since … */
    MAX_BEFORE = 22,    /* … all but the last of them go no further than this, and so stay inside of the block */
    COEFFICIENTS = 80,   /* room for a block: 64, and one behind them for values to discard */
    AT_A_TIME = 56 / LOOK, /* symbols of a look each between two refills */
    PADDING = 4096,      /* zero bytes behind the data: more than the blocks of an MCU can take */
};

/* An entry of `looks`: value << 16 | advance << 8 | bits. Where the symbol is longer than what was looked at, bits is
 * 0, and the rest symbol << 16 | bits of its code << 8; or 0 where even the code is longer. */
struct huffman {
    uint32_t looks[1 << LOOK];
    uint32_t passes[1 << LOOK]; /* advance << 8 | bits, of as many symbols as fit */
    uint32_t ends[17];          /* behind the codes of each length, as 16 bits */
    int32_t firsts[17];         /* what added to a code gives the place of its symbol */
    uint8_t symbols[256];
};

struct bits {
    uint64_t buffer; /* the next bits, at the top */
    int count;
    const uint8_t *next;
};

static inline int extended(uint32_t bits, int count) { /* T.81, F.12 */
    return count && bits < 1u << (count - 1) ? (int)bits - (1 << count) + 1 : (int)bits;
}

static inline uint32_t entry_of(int value, int advance, int bits) {
    return (uint32_t)value << 16 | (uint32_t)advance << 8 | (uint32_t)bits;
}

static inline int advance_of(int symbol) { return symbol & 15 ? (symbol >> 4) + 1 : symbol == 0xf0 ? 16 : END; }

/* `counts` of codes of 1 … 16 bits, and their symbols. 0 where they are no Huffman code. */
static int build_huffman(struct huffman *h, const uint8_t *counts, const uint8_t *symbols, int is_dc) {
    uint32_t code = 0, at = 0, place = 0;
    for (int bits = 1; bits <= 16; bits++) {
        h->firsts[bits] = (int32_t)place - (int32_t)code;
        for (int i = 0; i < counts[bits - 1]; i++, code++, place++) {
            if (place >= 256 || code >= 1u << bits) return 0;
            uint8_t symbol = h->symbols[place] = symbols[place];
            if (is_dc && symbol > 15) return 0;
            if (bits > LOOK) continue;
            int more = symbol & 15, free_bits = LOOK - bits - more;
            if (free_bits < 0) {
                for (int n = 1 << (LOOK - bits); n; n--) h->looks[at++] = (uint32_t)symbol << 16 | (uint32_t)bits << 8;
                continue;
            }
            for (uint32_t value = 0; value < 1u << more; value++) {
                uint32_t entry = entry_of(extended(value, more), advance_of(symbol), bits + more);
                for (int n = 1 << free_bits; n; n--) h->looks[at++] = entry;
            }
        }
        h->ends[bits] = code << (16 - bits);
        code <<= 1;
    }
    while (at < 1 << LOOK) h->looks[at++] = 0;
    return 1;
}

static void build_passes(struct huffman *h) {
    for (uint32_t look = 0; look < 1 << LOOK; look++) {
        uint32_t bits = 0, advance = 0;
        while (advance <= MAX_BEFORE) {
            uint32_t entry = h->looks[(look << bits) & ((1 << LOOK) - 1)], more = entry & 255;
            if (!more || bits + more > LOOK) break;
            bits += more;
            advance += entry >> 8 & 255;
        }
        h->passes[look] = bits ? advance << 8 | bits : 0;
    }
}

static inline void refill(struct bits *b) { /* to at least 56 bits */
    uint64_t word;
    memcpy(&word, b->next, sizeof word);
    b->buffer |= __builtin_bswap64(word) >> b->count;
    b->next += (63 - b->count) >> 3;
    b->count |= 56;
}

static inline void take(struct bits *b, int count) {
    b->buffer <<= count;
    b->count -= count;
}

/* What `looks` would say if it looked at more bits; 0 where there is no such symbol. At most 31 bits. */
static __attribute__((noinline)) uint32_t look_further(const struct huffman *h, uint64_t buffer, uint32_t entry) {
    int bits = entry >> 8 & 255, symbol = entry >> 16;
    if (!bits) {
        uint32_t ahead = buffer >> 48;
        for (bits = LOOK + 1; ahead >= h->ends[bits]; bits++)
            if (bits == 16) return 0;
        symbol = h->symbols[((ahead >> (16 - bits)) + h->firsts[bits]) & 255];
    }
    int more = symbol & 15;
    int value = more ? extended((uint32_t)(buffer << bits >> (64 - more)), more) : 0;
    return entry_of(value, advance_of(symbol), bits + more);
}

static inline __attribute__((always_inline)) int read_dc(struct bits *b, const struct huffman *dc, int *last) {
    refill(b);
    uint32_t entry = dc->looks[b->buffer >> (64 - LOOK)];
    if (!(entry & 255)) {
        entry = look_further(dc, b->buffer, entry);
        if (!entry) return 0;
    }
    take(b, entry & 255);
    *last = (int)((uint32_t)*last + (uint32_t)((int32_t)entry >> 16)); /* damage may let it overflow */
    return 1;
}

static const uint8_t natural[LAST + END + 17] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,
    7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46,
    53, 60, 61, 54, 47, 55, 62, 63,
    [64 ... LAST + END + 16] = 64, /* the one to discard */
};

static inline int is_block_end(int position) { return position == LAST || position >= END; }

/* One block, whose coefficients are 0 so far. Its last position, END where there is only the first coefficient; -1
 * where something is wrong. */
static inline __attribute__((always_inline)) int read_block(struct bits *b, const struct huffman *dc,
                                                            const struct huffman *ac, int *last, int16_t *out) {
    if (!read_dc(b, dc, last)) return -1;
    out[0] = (int16_t)*last;
    int at = 0;
    do {
        refill(b);
        uint32_t entry = ac->looks[b->buffer >> (64 - LOOK)];
        if (!(entry & 255)) {
            entry = look_further(ac, b->buffer, entry);
            if (!entry) return -1;
            take(b, entry & 255);
            at += entry >> 8 & 255;
            out[natural[at]] = (int16_t)(entry >> 16);
            continue;
        }
        for (int n = AT_A_TIME;;) {
            take(b, entry & 255);
            at += entry >> 8 & 255;
            out[natural[at]] = (int16_t)(entry >> 16);
            if (at >= LAST || !--n) break;
            entry = ac->looks[b->buffer >> (64 - LOOK)];
            if (!(entry & 255)) break;
        }
    } while (at < LAST);
    return is_block_end(at) ? at : -1;
}

/* The same for a block that nobody will see. */
static inline __attribute__((always_inline)) int pass_block(struct bits *b, const struct huffman *dc,
                                                            const struct huffman *ac, int *last) {
    if (!read_dc(b, dc, last)) return 0;
    int at = 0;
    do {
        refill(b);
        for (int n = AT_A_TIME;;) {
            uint32_t entry = (at <= TOGETHER_UP_TO ? ac->passes : ac->looks)[b->buffer >> (64 - LOOK)];
            if (!(entry & 255)) {
                if (n < AT_A_TIME) break;
                entry = look_further(ac, b->buffer, ac->looks[b->buffer >> (64 - LOOK)]);
                if (!entry) return 0;
                n = 1;
            }
            take(b, entry & 255);
            at += entry >> 8 & 255;
            if (at >= LAST || !--n) break;
        }
    } while (at < LAST);
    return is_block_end(at);
}

#endif
