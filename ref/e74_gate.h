/* e74_gate.h - act of E74's z: the gate that the cell reads, and the gradient back through it. */
#ifndef REF_E74_GATE_H
#define REF_E74_GATE_H

#include "ref/ref.h"

#include "common/ops/e74.h"

/* sigma(p), or twice that. */
static inline real e74_act(int act, real p)
{
    return act == E74_TWICE_SIGMOID ? 2 * sigmoid(p) : sigmoid(p);
}

/* Its derivative, sigma(p) sigma(-p): 1 - sigma would cancel. */
static inline real e74_act_slope(int act, real p)
{
    const real e = exp(-fabs(p)), slope = e / ((1 + e) * (1 + e));
    return act == E74_TWICE_SIGMOID ? 2 * slope : slope;
}

/* gate = act(z), n elements. */
static inline void e74_make_gate(const struct call *f, int64_t n)
{
    const num *z = ARGS(f, e74)->z;
    num *gate = ARGS(f, e74)->gate;

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        gate[i] = store(e74_act(f->choice[E74_Z_ACT], load(z[i])));
}

/* dz, of the gate before, becomes that of z. */
static inline void e74_back_through_gate(const struct call *f, num *dz, int64_t n)
{
    const num *z = ARGS(f, e74)->z;

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        dz[i] = store(load(dz[i]) * e74_act_slope(f->choice[E74_Z_ACT], load(z[i])));
}

#endif
