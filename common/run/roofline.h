/* roofline.h - where a time is under the roofline of its device, and one line of advice.
 *
 *     intensity  = FLOPs / bytes                          ridge = peak / memory
 *     attainable = min(peak, memory * intensity)          FLOP/s
 *     efficiency = max(FLOPs / peak, bytes / memory) / seconds
 *
 * The peak is that of the tensor cores where storage has 16 bits and half or more of the FLOPs are
 * those of matrix products, else FP32's.  Efficiency is the FLOP/s reached / attainable, and for what
 * has no FLOPs the bytes per second / memory.  (Williams, Waterman, Patterson, "Roofline", CACM 2009.)
 * What is not known is NaN. */
#ifndef ROOFLINE_H
#define ROOFLINE_H

#include "common/run/ceilings.h"

/* What a pass does, and what is known of how. */
struct profile {
    double seconds, flops, bytes;
    double products;         /* of the FLOPs */
    int half;                /* has its storage 16 bits? */
    double latency, special; /* the fractions of these ceilings that it reached */
    double steps;            /* of its chain of dependent operations; 0: it has none */
    struct launches launches;
};
struct profile profile_of(const struct call *f, enum pass p, const struct outcome *out);

struct roofline {
    double intensity, ridge, attainable, efficiency;
};
/* c NULL: the ceilings are not known. */
struct roofline roofline_of(const struct ceilings *c, const struct profile *p);

/* Of the launch with the most threads: the warps that an SM holds / the most that it can, and the
 * blocks / those that all SMs hold. */
double occupancy_of(const struct launches *l);
double waves_of(const struct launches *l);

/* What binds a pass that reaches less than 80 % of the roofline, and what to try: the first rule that
 * holds.  Below 30 % of a ceiling that one does not bind: then it is the chain, where there is one.  "" where none holds, or
 * nothing is known.  Returns text. */
enum { ADVICE = 160 };
const char *advice(const struct ceilings *c, const struct profile *p, char text[ADVICE]);

#endif
