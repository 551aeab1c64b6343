/* Quantised weights: their formats, byte for byte those of GGUF files and of bitsandbytes, and
 *
 *     dequantise:    W, bytes -> w [N,K], which is exact
 *     quantise:      w [N,K] -> W
 *
 * Rows of q4_k, q5_k and q6_k are super-blocks of 256 weights, those of q8_0 blocks of 32; nf4 knows
 * no rows, places count through all of W.  Little-endian, bit 0 the lowest, i the place in the block:
 *
 *     q4_k  144 bytes:  0 d, 2 dmin (fp16), 4 a[12], 16 qs[128]
 *     q5_k  176         0 d, 2 dmin, 4 a[12], 16 qh[32], 48 qs[128]
 *         j < 4:   s_j = a[j] & 63                             m_j = a[4+j] & 63
 *         j >= 4:  s_j = a[4+j] & 15 | (a[j-4] >> 6) << 4      m_j = a[4+j] >> 4 | (a[j] >> 6) << 4
 *         q = qs[32 (i/64) + i%32] >> 4 (i/32 % 2) & 15,  in q5_k + 16 (qh[i%32] >> i/32 & 1)
 *         w = d s_j q - dmin m_j,  j = i/32
 *     q6_k  210         0 ql[128], 128 qh[64], 192 sc[16] (int8), 208 d
 *         q = (ql[64 (i/128) + i%64] >> 4 (i%128 / 64) & 15)
 *             + 16 (qh[32 (i/128) + i%32] >> 2 (i%128 / 32) & 3)
 *         w = d sc[i/16] (q - 32)
 *     q8_0  34          0 d, 2 q[32] (int8)
 *         w = d q
 *     nf4               the code of weight 2k in the high half of byte k, of 2k+1 in the low one
 *         w = nf4_table[code] absmax[place / block]
 *     nf4, double_quant absmax = nf4_map[absmax8[b]] absmax2[b / 256] + offset
 *
 * Dequantise is all in fp32, which rounds q4_k and q5_k once, at the subtraction, q6_k and q8_0 never; nf4 at its
 * product, and with double_quant at the product and the sum of absmax as well.  So there is one right
 * answer.
 *
 * Quantise is all in fp32 as well, but for the mean, and has one right answer, too:
 *
 *     q8_0   d = max |x| / 127,  q = round(x (1 / d)), halves away from 0;  then d to fp16
 *     nf4    absmax = max |x| of the block,  code = how many midpoints of neighbours in the table
 *            x (1 / absmax) exceeds;  7 where absmax = 0
 *     nf4, double_quant: offset = the mean of all absmax, summed in double, pairwise: each 256 of them to
 *            one by halves, zeros behind the last, then each 256 of the sums, until one is left;
 *            absmax2 = max |absmax - offset| of 256 blocks,  absmax8 = how many midpoints of the map
 *            (absmax - offset) (1 / absmax2) exceeds;  127 where absmax2 = 0
 *
 * These are ggml's and bitsandbytes' bytes (of zeros some backends of the latter have code 0; its mean
 * depends on the order of the sum).  Where 1/d is no finite float, far below fp16, codes of q8_0 are 0.
 *
 * The scales of q4_k, q5_k and q6_k are searched for, which has one right answer as well: in fp32, each
 * operation rounded, a (b c) as it is written here, sums pairwise (neighbours, then pairs of
 * neighbours, ...), clamp(x) = min(max(x, low), high), NaN the low end, round() halves to even, least
 * and largest the first of equals.  v is the weight of a w in the error:
 *
 *     plain, wide     1, or I with importance
 *     published       q4_k, q5_k: r + |w|, r = sqrt(sum of w w / 32) of the block of 32;
 *                     with importance I sqrt(z + w w), z = 2 (sum of w w / 256) of the super-block;
 *                     q6_k: w w, with importance I;       where all I of a block are 0 they count as 1
 *
 *     q4_k (n = 15), q5_k (n = 31), per 32:    lo = min(0, min w),  hi = max w;  hi <= lo: s = 0, m = -lo
 *         first s = (hi - lo) / n, m = -lo, and its error, with r = 0
 *         while hi > lo, for each r:   q = clamp(round(((n + r) / (hi - lo)) (w - lo)), 0 ... n)
 *             D = V Sqq - Sq Sq > 0:   s = (V Swq - Sw Sq) / D,  m = (Sq Swq - Sqq Sw) / D;
 *             m < 0: m = 0, s = Swq / Sqq;    error = sum of v e e,  e = s q - m - w
 *             less than before: keep s and m, go on from lo = -m
 *         where V = sum of v, Sq of v q, Sqq of (v q) q, Swq of (v q) w, Sw of v w
 *       of a super-block:  d = S/63, S = max s;  dmin = M/63, M = max m;  published with importance:
 *         of r = -0.9, -0.85 ... 0.9:  L = clamp(round(((63 + r)/S) s), 0 ... 63),  d = sum of (V L) s / sum
 *         of (V L) L,  the least sum of V e e, e = d L - s;  dmin likewise by m;  first S/63, M/63
 *       then d and dmin to fp16, 65504 at most;  s, m = clamp(round(s/d), 0 ... 63), clamp(round(m/dmin)),
 *         0 where d or dmin is 0;  q = clamp(round((w + dmin m) (1 / (d s))), 0 ... n), 0 where d s = 0
 *         wide: of d and dmin times 0.97, 0.98 ... 1.03, dmin innermost, the pair of least error
 *         d = 0: everything is 0, unless the error is less than that of zeros
 *     q6_k, per 16:  w0 the w of largest |w|;  0: s = 0;  for each r:
 *         q = clamp(round((-(32 + r) / w0) w), -32 ... 31),  Sqq > 0:  s = Swq / Sqq, the largest s Swq > 0;  else s = 0
 *       of a super-block:  s0 the s of largest |s|,  d = -s0 / 128 to fp16, +-65504 at most;
 *         sc = clamp(round(s/d), -128 ... 127), 0 where d = 0;  q = clamp(round(w (1 / (d sc))), -32 ... 31),
 *         0 where d sc = 0;  wide: of d times 0.97 ... 1.03 that of least error
 *
 *     r      plain, published                wide                    published with importance
 *     q4_k   -1, -0.9 ... 1                  -1.5, -1.425 ... 1.5    -0.9, -0.85 ... 0.9
 *     q5_k   -0.5, -0.4 ... 1                likewise                likewise
 *     q6_k   -0.9, -0.8 ... 0.9              likewise                -0.9, -0.8 ... 0.9
 *
 * `published` is ggml's method, `plain` the same without its weights, `wide` a longer search.
 * Sources: ggml-quants.c of github.com/ggml-org/ggml; Dettmers et al., QLoRA (2023),
 * arXiv:2305.14314. */
#ifndef QUANTISED_H
#define QUANTISED_H

#include <stdint.h>

struct dequantise {
    void *W;       /* bytes, [N, row_bytes]; nf4: [(N K + 1) / 2] */
    void *absmax;  /* nf4 [blocks], wide; with double_quant these three instead: */
    void *absmax8; /* bytes, [blocks] */
    void *absmax2; /* [(blocks + 255) / 256], wide */
    void *offset;  /* [1], wide */
    void *w;       /* [N,K] */
};

struct quantise {
    void *w;                                       /* [N,K] */
    void *importance;                              /* [K], 0 or more; or NULL */
    void *W, *absmax, *absmax8, *absmax2, *offset; /* as dequantise has them */
};

/* The parameters of an operation on quantised weights; the last two are quantise's. */
enum {
    QUANTISED_N,
    QUANTISED_K,
    QUANTISED_FORMAT,
    QUANTISED_DOUBLE,
    QUANTISED_BLOCK,
    QUANTISED_DATA,
    QUANTISE_SEARCH,
    QUANTISE_IMPORTANCE
};

enum quantised { Q4_K, Q5_K, Q6_K, Q8_0, NF4 };
enum quantise_search { PLAIN, PUBLISHED, WIDE_SEARCH };
enum { SUPER_BLOCK = 256, NF4_GROUP = 256 /* blocks that share an absmax2 */ };

/* The values of r, in thousandths. */
struct quantise_steps {
    int first, step, count;
};
static inline struct quantise_steps quantise_steps(enum quantised format,
                                                   enum quantise_search search, int importance)
{
    if (search == WIDE_SEARCH)
        return (struct quantise_steps){-1500, 75, 41};
    if (format == Q6_K)
        return (struct quantise_steps){-900, 100, 19};
    if (search == PUBLISHED && importance)
        return (struct quantise_steps){-900, 50, 37};
    return format == Q4_K ? (struct quantise_steps){-1000, 100, 21}
                          : (struct quantise_steps){-500, 100, 16};
}

/* The weights and the bytes of a block; of nf4 two weights, one byte. */
struct quantised_block {
    int weights, bytes;
};
static inline struct quantised_block quantised_block(enum quantised format)
{
    switch (format) {
    case Q4_K: return (struct quantised_block){256, 144};
    case Q5_K: return (struct quantised_block){256, 176};
    case Q6_K: return (struct quantised_block){256, 210};
    case Q8_0: return (struct quantised_block){32, 34};
    default: return (struct quantised_block){2, 1};
    }
}

/* The elements of both tables.  The map is bitsandbytes' (create_dynamic_map): 0, 1, and for n = 0 ... 6
 * both signs of 10^(n-6) times the 2^n midpoints of as many equal parts of [0.1, 1], computed in fp32,
 * by which 72 of them are one off from the nearest float. */
/* clang-format off */
#define NF4_TABLE \
    -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, \
    -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f, \
    0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f, \
    0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f
#define NF4_MAP \
    -0.992968738f, -0.978906274f, -0.96484375f, -0.950781226f, -0.936718762f, -0.922656238f, \
    -0.908593774f, -0.89453125f, -0.880468726f, -0.866406262f, -0.852343738f, -0.838281274f, \
    -0.82421875f, -0.810156226f, -0.796093762f, -0.782031238f, -0.767968774f, -0.75390625f, \
    -0.739843726f, -0.725781262f, -0.711718798f, -0.697656274f, -0.68359375f, -0.669531226f, \
    -0.655468762f, -0.641406298f, -0.627343774f, -0.61328125f, -0.599218726f, -0.585156262f, \
    -0.571093798f, -0.557031274f, -0.54296875f, -0.528906226f, -0.514843702f, -0.500781238f, \
    -0.486718714f, -0.47265625f, -0.458593726f, -0.444531262f, -0.430468738f, -0.416406244f, \
    -0.40234375f, -0.388281226f, -0.374218762f, -0.360156238f, -0.346093744f, -0.33203125f, \
    -0.317968726f, -0.303906262f, -0.289843738f, -0.275781274f, -0.26171875f, -0.247656241f, \
    -0.233593747f, -0.219531253f, -0.205468744f, -0.19140625f, -0.177343756f, -0.163281247f, \
    -0.149218753f, -0.135156244f, -0.12109375f, -0.107031256f, -0.0985937491f, -0.0957812592f, \
    -0.0929687545f, -0.0901562497f, -0.0873437524f, -0.0845312476f, -0.0817187577f, \
    -0.078906253f, -0.0760937482f, -0.0732812509f, -0.0704687461f, -0.0676562563f, \
    -0.0648437515f, -0.0620312504f, -0.0592187531f, -0.0564062484f, -0.053593751f, -0.05078125f, \
    -0.047968749f, -0.0451562516f, -0.0423437469f, -0.0395312496f, -0.0367187522f, \
    -0.0339062512f, -0.0310937501f, -0.028281251f, -0.0254687499f, -0.0226562507f, \
    -0.0198437516f, -0.0170312505f, -0.0142187504f, -0.0114062503f, -0.00971874967f, \
    -0.00915624946f, -0.00859375019f, -0.00803124998f, -0.00746874977f, -0.00690625003f, \
    -0.00634374982f, -0.00578125007f, -0.00521875033f, -0.00465624966f, -0.00409374991f, \
    -0.00353124971f, -0.00296874996f, -0.00240624999f, -0.00184375001f, -0.00128124992f, \
    -0.000943750085f, -0.000831249985f, -0.00071875006f, -0.000606250076f, -0.000493750034f, \
    -0.000381250022f, -0.000268750038f, -0.000156250011f, -8.87499991e-05f, -6.62500024e-05f, \
    -4.37499984e-05f, -2.12499981e-05f, -7.7499999e-06f, -3.25000019e-06f, -5.50000038e-07f, \
    0.0f, 5.50000038e-07f, 3.25000019e-06f, 7.7499999e-06f, 2.12499981e-05f, 4.37499984e-05f, \
    6.62500024e-05f, 8.87499991e-05f, 0.000156250011f, 0.000268750038f, 0.000381250022f, \
    0.000493750034f, 0.000606250076f, 0.00071875006f, 0.000831249985f, 0.000943750085f, \
    0.00128124992f, 0.00184375001f, 0.00240624999f, 0.00296874996f, 0.00353124971f, \
    0.00409374991f, 0.00465624966f, 0.00521875033f, 0.00578125007f, 0.00634374982f, \
    0.00690625003f, 0.00746874977f, 0.00803124998f, 0.00859375019f, 0.00915624946f, \
    0.00971874967f, 0.0114062503f, 0.0142187504f, 0.0170312505f, 0.0198437516f, 0.0226562507f, \
    0.0254687499f, 0.028281251f, 0.0310937501f, 0.0339062512f, 0.0367187522f, 0.0395312496f, \
    0.0423437469f, 0.0451562516f, 0.047968749f, 0.05078125f, 0.053593751f, 0.0564062484f, \
    0.0592187531f, 0.0620312504f, 0.0648437515f, 0.0676562563f, 0.0704687461f, 0.0732812509f, \
    0.0760937482f, 0.078906253f, 0.0817187577f, 0.0845312476f, 0.0873437524f, 0.0901562497f, \
    0.0929687545f, 0.0957812592f, 0.0985937491f, 0.107031256f, 0.12109375f, 0.135156244f, \
    0.149218753f, 0.163281247f, 0.177343756f, 0.19140625f, 0.205468744f, 0.219531253f, \
    0.233593747f, 0.247656241f, 0.26171875f, 0.275781274f, 0.289843738f, 0.303906262f, \
    0.317968726f, 0.33203125f, 0.346093744f, 0.360156238f, 0.374218762f, 0.388281226f, \
    0.40234375f, 0.416406244f, 0.430468738f, 0.444531262f, 0.458593726f, 0.47265625f, \
    0.486718714f, 0.500781238f, 0.514843702f, 0.528906226f, 0.54296875f, 0.557031274f, \
    0.571093798f, 0.585156262f, 0.599218726f, 0.61328125f, 0.627343774f, 0.641406298f, \
    0.655468762f, 0.669531226f, 0.68359375f, 0.697656274f, 0.711718798f, 0.725781262f, \
    0.739843726f, 0.75390625f, 0.767968774f, 0.782031238f, 0.796093762f, 0.810156226f, \
    0.82421875f, 0.838281274f, 0.852343738f, 0.866406262f, 0.880468726f, 0.89453125f, \
    0.908593774f, 0.922656238f, 0.936718762f, 0.950781226f, 0.96484375f, 0.978906274f, \
    0.992968738f, 1.0f
/* clang-format on */

#endif
