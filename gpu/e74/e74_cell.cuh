/* e74_cell.cuh - the arguments of one call of e74_cell for its kernels: sizes, choices, tensors;
 * and loads and stores of checkpoints. */
#ifndef E74_CELL_CUH
#define E74_CELL_CUH

#include "common/ops/e74.h"
#include "gpu/gpu.cuh"

/* Its kernels, each of a file in cell/ (plain: e74_cell.cu); those of bf16 alone last. */
GPU_KERNEL_IN(plain_cell);
GPU_KERNEL_IN(narrow_cell);
GPU_KERNEL_IN(norms_cell);
GPU_KERNEL_IN(rows_cell);
GPU_KERNEL_IN(diagonal_cell);
extern const struct impl split_cell, chunked_cell;

/* A state is N rows of `columns` elements, as in ref/e74_cell.c, M elements in all; `rows`
 * neighbouring rows use the same columns of the keys. */
struct cell_call {
    int64_t T, BH, H, K;
    int N, columns, rows, L, group, lanes;
    int64_t M;
    int nonlin, lowrank, z_inside, z_outside, kept;
    int state_shared; /* forward: does the state fit into shared memory? */
    const void *k, *v, *q, *z, *W_r;
    const float *first, *V0;
    void *out, *y, *checkpoints;
    float *last;
    const void *dout;
    const float *dlast;
    void *dk, *dv, *dq, *dz;
    float *dfirst, *dV0, *dW_r;
    float *dW_r_parts, *work;
    int64_t work_each; /* floats of a block's workspace */
    /* Behind all that is as old as the kernels which read none of it: with these among the others `rows` spilled. */
    int64_t V_rows; /* H where V0 is shared, else BH */
    int V_shared;
    float *dV_parts;
};

/* V of row bh. */
static __device__ __forceinline__ const float *V_of(const cell_call &c, int64_t bh)
{
    return c.V0 + bh % c.V_rows * c.M;
}

/* Is there a z?  (Its address is not known where sizes are asked for.) */
static __host__ __device__ __forceinline__ bool with_z(const cell_call &c)
{
    return c.z_inside || c.z_outside;
}

static inline cell_call cell_call_of(const struct call *f)
{
    const struct e74_cell *a = ARGS(f, e74_cell), *g = GRADS(f, e74_cell);
    int N = (int)DIM(f, 'N'), R = (int)DIM(f, 'R'), b = (int)DIM(f, 'L');
    int state = f->choice[E74_STATE], z_mod = f->choice[E74_Z_MOD];
    int z = f->choice[E74_PROJ] == E74_WITH_Z;
    cell_call c = {};

    c.T = DIM(f, 'T');
    c.H = DIM(f, 'H');
    c.BH = DIM(f, 'B') * c.H;
    c.K = DIM(f, 'K') < c.T ? DIM(f, 'K') : c.T;
    c.N = N;
    c.columns = state == E74_FULL ? N : state == E74_DIAGONAL ? 1 : state == E74_LOWRANK ? R : b;
    c.rows = state == E74_DIAGONAL ? 1 : state == E74_BLOCKDIAG ? b : N;
    c.group = state == E74_BLOCKDIAG ? b : N;
    c.L = N / c.rows * c.columns;
    c.M = (int64_t)N * c.columns;
    for (c.lanes = 1; c.lanes < 32 && 4 * c.lanes < c.columns; c.lanes *= 2)
        ;
    c.nonlin = f->choice[E74_NONLIN];
    c.lowrank = state == E74_LOWRANK;
    c.V_shared = c.lowrank && f->choice[E74_V] == E74_V_SHARED;
    c.V_rows = c.V_shared ? c.H : c.BH;
    c.z_inside = z && z_mod != E74_ROW;
    c.z_outside = z && z_mod != E74_COLUMN;
    c.kept = f->choice[E74_CHECKPOINT_DTYPE];
    c.k = a->k, c.v = a->v ? a->v : a->k, c.q = a->q ? a->q : a->k, c.z = a->z;
    c.W_r = a->W_r, c.V0 = (const float *)a->V0;
    c.first = (const float *)(a->S0 ? a->S0 : a->U0);
    c.out = a->out, c.y = a->y, c.checkpoints = a->checkpoints;
    c.last = (float *)(a->S_T ? a->S_T : a->U_T);
    c.dout = g->out, c.dlast = (const float *)(g->S_T ? g->S_T : g->U_T);
    c.dk = g->k, c.dv = g->v, c.dq = g->q, c.dz = g->z;
    c.dfirst = (float *)(g->S0 ? g->S0 : g->U0);
    c.dV0 = (float *)g->V0, c.dW_r = (float *)g->W_r;
    return c;
}

/* Copies of the functions in gpu.cuh: with the originals, the backward kernel of e74_cell.cu spills
 * registers. */
static inline __device__ void put_kept(const cell_call &c, int64_t slot, int64_t e, float x)
{
    if (c.kept == KEPT_F32)
        ((float *)c.checkpoints)[slot * c.M + e] = x;
    else if (c.kept == KEPT_BF16)
        ((__nv_bfloat16 *)c.checkpoints)[slot * c.M + e] = __float2bfloat16(x);
    else
        ((__half *)c.checkpoints)[slot * c.M + e] = __float2half(x);
}

static inline __device__ float get_kept(const cell_call &c, int64_t slot, int64_t e)
{
    if (c.kept == KEPT_F32)
        return ((const float *)c.checkpoints)[slot * c.M + e];
    if (c.kept == KEPT_BF16)
        return __bfloat162float(((const __nv_bfloat16 *)c.checkpoints)[slot * c.M + e]);
    return __half2float(((const __half *)c.checkpoints)[slot * c.M + e]);
}

#endif
