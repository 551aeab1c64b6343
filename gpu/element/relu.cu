/* relu: y = max(x, 0), NaN kept.  Mapping of elements to threads: elementwise.cuh. */
#include "gpu/element/elementwise.cuh"

struct relu_value { /* y of x */
    enum { IN = 1, OUT = 1 };
    static __device__ void at(const float *in, float *out) { out[0] = in[0] <= 0 ? 0 : in[0]; }
};

struct relu_slope { /* dx of x, dy */
    enum { IN = 2, OUT = 1 };
    static __device__ void at(const float *in, float *out) { out[0] = in[0] <= 0 ? 0 : in[1]; }
};

template <typename T, bool VECTOR>
static constexpr auto forward = unary_forward<T, VECTOR, relu_value>;
template <typename T, bool VECTOR>
static constexpr auto backward = unary_backward<T, VECTOR, relu_slope>;
ELEMENTWISE_KERNELS(relu, NULL, 0);
