/* dual_memory: Elman cells with a working state h and a tape M of N slots that
 * attention reads and writes: E23, E25, E26, E29a, E29b and E29c.  For each of
 * B sequences, at each of T steps, with s = 1/sqrt(D):
 *
 *     rho   = attend(s M h)
 *     read  = M^T rho                       sum over slots of rho_n M_n
 *     h     <- tanh(W_h h + W_x x + read + b_h)
 *     v     = W_write h                     rounded to the storage type
 *     omega = attend(s M query)             query: h, or v; M still unwritten
 *     M_n   <- (1 - omega_n) M_n + omega_n v
 *     out   = h, or h silu(g)               by the gate; the recurrence carries h
 *
 *     preset   attention   query   gate: g
 *     e23      softmax     h       none
 *     e25      entmax15    h       none
 *     e26      softmax     v       none
 *     e29a     softmax     v       sum: z + read + h
 *     e29b     softmax     v       matrix: W_gate [z; read; h]
 *     e29c     softmax     v       scaled: z g_z + read g_r + h g_h + b_g, within +-20
 *
 * A gated cell has [W_x; W_z] = W_xz, and z = W_z x.  attend is softmax, or the
 * exact 1.5-entmax: p_n = [a_n/2 - tau]_+^2 with tau such that the sum is 1. */
#ifndef DUAL_MEMORY_H
#define DUAL_MEMORY_H

#include "common/call/call.h"

enum {
    DUAL_PRESET,
    DUAL_ATTENTION,
    DUAL_QUERY,
    DUAL_GATE,
    DUAL_TAPE,
    DUAL_TAPE_INIT,
    DUAL_CHECKPOINT_DTYPE
};

enum { DUAL_E23, DUAL_E25, DUAL_E26, DUAL_E29A, DUAL_E29B, DUAL_E29C, DUAL_PARTS }; /* preset */
enum { DUAL_AT_D, DUAL_AT_H };                                                      /* sites */
enum { DUAL_SOFTMAX, DUAL_ENTMAX15 };                                               /* attention */
enum { DUAL_QUERY_H, DUAL_QUERY_V };                       /* write_query */
enum { DUAL_NO_GATE, DUAL_SUM, DUAL_MATRIX, DUAL_SCALED }; /* gate */
enum { DUAL_SHARED, DUAL_EACH };                           /* tape */
enum { DUAL_NORMAL, DUAL_ZERO };                           /* tape_init */

struct dual_memory {
    void *x;                     /* [T,B,I] */
    void *W_h, *b_h, *W_write;   /* [D,D], [D], [D,D] */
    void *W_x, *W_xz;            /* [D,I] without a gate; [2D,I] with one */
    void *W_gate;                /* [D,3D]: gate = matrix */
    void *g_z, *g_r, *g_h, *b_g; /* [D]: gate = scaled */
    void *h0, *M0;               /* [B,D]; [N,D], or [B,N,D]: tape = each */
    void *out, *h_T, *M_T;       /* [T,B,D], [B,D], [B,N,D] */
    void *h, *v;                 /* [T,B,D]: h and v of every step */
    void *rho, *omega;           /* [T,B,N] */
    void *z, *read, *g;          /* [T,B,D]: of a gate, g where it is a matrix's */
    void *checkpoints;           /* [C,B,N,D]: the tape before steps 0, K, 2K, ... */
};

/* The parts of a preset. */
struct dual_parts {
    int attention, query, gate;
};

static inline struct dual_parts dual_parts(const struct call *f)
{
    static const struct dual_parts of[] = {
        [DUAL_E23] = {DUAL_SOFTMAX, DUAL_QUERY_H, DUAL_NO_GATE},
        [DUAL_E25] = {DUAL_ENTMAX15, DUAL_QUERY_H, DUAL_NO_GATE},
        [DUAL_E26] = {DUAL_SOFTMAX, DUAL_QUERY_V, DUAL_NO_GATE},
        [DUAL_E29A] = {DUAL_SOFTMAX, DUAL_QUERY_V, DUAL_SUM},
        [DUAL_E29B] = {DUAL_SOFTMAX, DUAL_QUERY_V, DUAL_MATRIX},
        [DUAL_E29C] = {DUAL_SOFTMAX, DUAL_QUERY_V, DUAL_SCALED},
    };
    struct dual_parts chosen = {f->choice[DUAL_ATTENTION], f->choice[DUAL_QUERY],
                                f->choice[DUAL_GATE]};
    return f->choice[DUAL_PRESET] == DUAL_PARTS ? chosen : of[f->choice[DUAL_PRESET]];
}

#endif
