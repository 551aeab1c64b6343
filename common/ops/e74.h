/* e74: the matrix-state delta-rule cell and the layer around it.  For each
 * of B sequences and H heads, at each of T steps, a state S is read by the
 * key, corrected towards the value, passed through f and read by the query:
 *
 *     k^ = k / (|k| + eps)          eps = 1e-6; block-diagonal: each block by itself
 *     rho = S k^                    z absent
 *     rho = S (z k^)                z_mod = column
 *     rho = z (S k^)                z_mod = row
 *     rho = z (S (z k^))            z_mod = full
 *     S <- f(S + (v - rho) k^T)     f: tanh, linear, rmsnorm, frobnorm
 *     y = S q,  out = y silu(y)
 *
 * S is a full n x n matrix; or a diagonal matrix (products element by element); or n/b
 * blocks of b x b; or U V^T of rank r, where (v - rho) (W_r k^)^T is added to U, f
 * is applied to U, and V is constant: each sequence's own, or one for all, a parameter of the model.
 *
 * e74_cell takes k, v, q, z; e74 takes x and the weights that make them; and e74_block is a
 * layer of a model, out = x + e74(rmsnorm(x)) W_o^T: a chain of the operations rmsnorm,
 * e74 (linear, e74_cell) and linear, and the sum.  In these two the cell's z is act(p) of
 * p = W_z x + b_z, rounded to the storage type:
 *
 *     act(p) = p                    z_act = linear
 *     act(p) = sigma(p)             sigmoid: I - (z k^) k^T has eigenvalues in 0 ... 1 where z is a number
 *     act(p) = 2 sigma(p)           twice_sigmoid: and here in -1 ... 1
 *
 * p is saved as z, and beside it the gate act(p): act' = sigma (1 - sigma) is lost in a sigma that is rounded.
 * All have the same choices, at the same places:
 */
#ifndef E74_H
#define E74_H

#include "common/call/call.h"

#define E74_EPSILON 1e-6

enum {
    E74_STATE,
    E74_PROJ,
    E74_NONLIN,
    E74_Z_MOD,
    E74_TRAJECTORY,
    E74_CHECKPOINT_DTYPE,
    E74_V /* whose V0 is; not named V0, which is the tensor in a line of a program */
};

enum { E74_FILL = 14 }; /* e74_cell's: the others have a size there, and no choice */
enum { E74_Z_ACT = E74_FILL + 1, E74_B_Z_FILL, E74_EPS }; /* the layers', eps e74_block's alone */

enum { E74_FULL, E74_DIAGONAL, E74_LOWRANK, E74_BLOCKDIAG }; /* state */
enum { E74_WITH_Z, E74_NO_Z, E74_TIED_KQ, E74_TIED_KVQ };    /* proj */
enum { E74_TANH, E74_LINEAR, E74_RMSNORM, E74_FROBNORM };    /* nonlin */
enum { E74_COLUMN, E74_ROW, E74_BOTH };                      /* z_mod */
enum { E74_CHECKPOINT, E74_STORE };                          /* trajectory */
enum { E74_V_EACH, E74_V_SHARED };                           /* V */
enum { E74_IDENTITY, E74_SIGMOID, E74_TWICE_SIGMOID };       /* z_act */
enum { E74_AT_GS, E74_AT_DELTA };                            /* sites */

struct e74_cell {
    void *k, *v, *q, *z; /* [T,B,H,n]; absent where tied or without z */
    void *S0;            /* [B,H,n,n], [B,H,n] or [B,H,n/b,b,b] */
    void *U0, *V0, *W_r; /* low rank: [B,H,n,r] twice (V = shared: V0 [H,n,r]), [H,r,n] */
    void *out;           /* [T,B,H*n] */
    void *S_T, *U_T;     /* the final state, like the initial one */
    void *y;             /* [T,B,H,n] */
    void *checkpoints;   /* the states before steps 0, K, 2K, ...; stored: K is 1 */
};

struct e74 {
    void *x;               /* [T,B,d] */
    void *W_k, *W_v, *W_q; /* [H*n,d]: k = W_k x, ... */
    void *W_z, *b_z;       /* z = W_z x + b_z, before act */
    void *S0, *U0, *V0, *W_r;
    void *out;
    void *S_T, *U_T;
    void *k, *v, *q, *z; /* saved for the backward pass */
    void *gate;          /* act(z), the cell's z, where act is not the identity */
    void *y;
    void *checkpoints;
};

struct e74_block {
    void *x;               /* [T,B,d] */
    void *w_norm;          /* [d] */
    void *W_k, *W_v, *W_q; /* [H*n,d] */
    void *W_z, *b_z;       /* of normed, too */
    void *S0, *U0, *V0, *W_r;
    void *W_o; /* [d,H*n] */
    void *out; /* [T,B,d] */
    void *S_T, *U_T;
    void *normed, *rstd; /* [T,B,d], [T,B]: kept for the backward pass, like all that follow */
    void *k, *v, *q, *z, *gate;
    void *y, *read; /* read: e74's out, [T,B,H*n] */
    void *checkpoints;
};

/* Is the cell's z another tensor than the layer's, the gate act(z)? */
static inline int e74_has_gate(const struct call *f)
{
    return f->choice[E74_PROJ] == E74_WITH_Z && f->choice[E74_Z_ACT] != E74_IDENTITY;
}

/* The cell's call within the layer's f: its tensors are the layer's, z the gate where there is one,
 * and its gradients of k, v, q, z are dp (NULL: none are wanted), where f has those. */
static inline struct call e74_cell_call(const struct call *f, void *const dp[4], void *work)
{
    const struct e74 *a = ARGS(f, e74), *g = GRADS(f, e74);
    struct call c = *f;
    // clang-format off
    struct e74_cell ca = {a->k, a->v, a->q, e74_has_gate(f) ? a->gate : a->z, a->S0, a->U0, a->V0, a->W_r,
                          a->out, a->S_T, a->U_T, a->y, a->checkpoints};
    struct e74_cell cg = {dp && a->k ? dp[0] : NULL, dp && a->v ? dp[1] : NULL,
                          dp && a->q ? dp[2] : NULL, dp && a->z ? dp[3] : NULL,
                          g->S0, g->U0, g->V0, g->W_r, g->out, g->S_T, g->U_T, NULL, NULL};
    // clang-format on
    call_as(&c, &op_e74_cell, &ca, &cg, work);
    return c;
}

#endif
