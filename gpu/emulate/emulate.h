/* emulate.h - CUDA C for g++, executed on the CPU.  It replaces
 * cuda_runtime.h, cuda_bf16.h, cuda_fp16.h and cooperative_groups.h for
 * `configure --with-cuda=emulate`.
 *
 * Every thread of a block is a fiber; the fibers of a block (of a cluster,
 * of a cooperative grid) share one host thread and switch only in barriers
 * and warp collectives.  Blocks are distributed over OpenMP threads.
 * gpu/emulate/emulate.sed turns the three things that are not C++ - a launch and
 * the two kinds of shared memory - into the EMU_ macros at the end.
 *
 * Environment: EMU_SEED=n   schedule in a random order (0: ascending)
 *              CUDA_VISIBLE_DEVICES=  (empty) there is no device
 *              EMU_ABORT=1  abort() at a fault instead of returning an error
 *              EMU_STACK=n  KiB of stack for a thread
 */
#ifndef EMULATE_H
#define EMULATE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <algorithm>
#include <type_traits>

#define CUDA_EMULATE 1
#define CUDART_VERSION 12000

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))

/* ---- vectors ---- */

#define EMU_VEC(T, name, align2, align4)                                          \
    struct name##1 { T x; };                                                      \
    struct __align__(align2) name##2 { T x, y; };                                 \
    struct name##3 { T x, y, z; };                                                \
    struct __align__(align4) name##4 { T x, y, z, w; };                           \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }             \
    static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }     \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMU_VEC(float, float, 8, 16)
EMU_VEC(double, double, 16, 16)
EMU_VEC(int, int, 8, 16)
EMU_VEC(unsigned, uint, 8, 16)
EMU_VEC(short, short, 4, 8)
EMU_VEC(unsigned short, ushort, 4, 8)
EMU_VEC(unsigned char, uchar, 2, 4)
#undef EMU_VEC

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

/* ---- the running thread ---- */

struct emu_block {
    uint3 idx;
    dim3 dim, grid;
    unsigned rank;             /* in its cluster or cooperative grid */
    unsigned char *dynamic;    /* dynamic shared memory */
};

struct emu_thread {
    uint3 idx;
    unsigned lane;
    emu_block *block;
};

extern __thread struct emu_thread *emu_self;

extern __thread uint3 threadIdx, blockIdx;
extern __thread dim3 blockDim, gridDim;
enum { warpSize = 32 };

/* A source location.  As a default argument it is that of the caller. */
struct emu_place {
    const char *file;
    int line;
};
#define EMU_HERE emu_place here = {__builtin_FILE(), __builtin_LINE()}

/* Implemented in schedule.cc.  emu_collective waits until all lanes of mask have
 * arrived; the last one calls resolve, which reads each lane's argument from
 * arg[lane] and writes its result there. */
typedef void emu_resolve(void *const arg[32], unsigned present);
void emu_collective(unsigned mask, void *arg, emu_resolve *resolve, const char *what, emu_place);
int emu_block_barrier(int value, const char *what, emu_place);   /* sum of all values */
void emu_barrier(int number, int threads, bool waits, const char *what, emu_place);
void emu_gang_barrier(const char *what, emu_place);
[[noreturn]] void emu_fault(emu_place, const char *fmt, ...);
[[noreturn]] void emu_trap(emu_place);
void *emu_shared(const void *key, size_t bytes);
void *emu_map_shared(const void *p, unsigned rank);
unsigned emu_gang_size(void);
void emu_copy_later(void *to, const void *from, size_t bytes, size_t given);
void emu_copy_commit(void);
void emu_copy_wait(unsigned groups_left);
/* A thread's other asynchronous operations (TMA stores, wgmma), in groups.  Each is executed as
 * late as allowed, at the wait: what(a copy of the data). */
enum { EMU_PUT, EMU_WGMMA, EMU_LATER };
void emu_later(int kind, void (*what)(const void *), const void *data, size_t bytes);
void emu_later_commit(int kind);
void emu_later_wait(int kind, unsigned groups_left);
void emu_yield(void);

#define __trap() emu_trap({__FILE__, __LINE__})

/* ---- barriers and warp collectives ---- */

static inline void __syncthreads(EMU_HERE) { emu_block_barrier(0, "__syncthreads", here); }
static inline int __syncthreads_count(int p, EMU_HERE)
{
    return emu_block_barrier(!!p, "__syncthreads_count", here);
}
static inline int __syncthreads_or(int p, EMU_HERE)
{
    return !!emu_block_barrier(!!p, "__syncthreads_or", here);
}
static inline int __syncthreads_and(int p, EMU_HERE)
{
    return !emu_block_barrier(!p, "__syncthreads_and", here);
}

emu_resolve emu_resolve_nothing;
static inline void __syncwarp(unsigned mask = ~0u, EMU_HERE)
{
    emu_collective(mask, NULL, emu_resolve_nothing, "__syncwarp", here);
}

template <typename T> struct emu_shuffle {
    T value, result;
    int from;
    emu_place here;
};

template <typename T> void emu_resolve_shuffle(void *const *arg, unsigned present)
{
    for (unsigned left = present; left; left &= left - 1) {
        emu_shuffle<T> *to = (emu_shuffle<T> *)arg[__builtin_ctz(left)];
        if (!(present >> to->from & 1))
            emu_fault(to->here, "shuffle: lane %d reads lane %d, which takes no part",
                      __builtin_ctz(left), to->from);
        to->result = ((emu_shuffle<T> *)arg[to->from])->value;
    }
}

template <typename T>
static inline T emu_shfl(unsigned mask, T value, int from, int own, int width, const char *what,
                         emu_place here)
{
    int lane = emu_self->lane, base = lane & ~(width - 1);
    emu_shuffle<T> s = {value, value, own ? lane : base + (from & (width - 1)), here};
    emu_collective(mask, &s, emu_resolve_shuffle<T>, what, here);
    return s.result;
}
template <typename T>
static inline T __shfl_sync(unsigned mask, T v, int from, int width = 32, EMU_HERE)
{
    return emu_shfl(mask, v, from, 0, width, "__shfl_sync", here);
}
template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T v, int x, int width = 32, EMU_HERE)
{
    int lane = emu_self->lane & (width - 1), from = lane ^ x;
    return emu_shfl(mask, v, from, from >= width, width, "__shfl_xor_sync", here);
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T v, unsigned n, int width = 32, EMU_HERE)
{
    int from = (emu_self->lane & (width - 1)) + n;
    return emu_shfl(mask, v, from, from >= width, width, "__shfl_down_sync", here);
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T v, unsigned n, int width = 32, EMU_HERE)
{
    int from = (int)(emu_self->lane & (width - 1)) - (int)n;
    return emu_shfl(mask, v, from, from < 0, width, "__shfl_up_sync", here);
}

/* Reduce the lanes' values to one for all. */
template <typename T, typename F> void emu_resolve_fold(void *const *arg, unsigned present)
{
    T all = *(T *)arg[__builtin_ctz(present)];
    for (unsigned left = present & (present - 1); left; left &= left - 1)
        all = F()(all, *(T *)arg[__builtin_ctz(left)]);
    for (unsigned left = present; left; left &= left - 1)
        *(T *)arg[__builtin_ctz(left)] = all;
}
#define EMU_FOLD(name, T, expr)                                                   \
    struct emu_fold##name { T operator()(T a, T b) const { return expr; } };      \
    static inline T name(unsigned mask, T v, EMU_HERE)                            \
    {                                                                             \
        emu_collective(mask, &v, emu_resolve_fold<T, emu_fold##name>, #name, here); \
        return v;                                                                 \
    }
EMU_FOLD(__reduce_add_sync, unsigned, a + b)
EMU_FOLD(__reduce_max_sync, unsigned, a > b ? a : b)
EMU_FOLD(__reduce_min_sync, unsigned, a < b ? a : b)
EMU_FOLD(__reduce_and_sync, unsigned, a & b)
EMU_FOLD(__reduce_or_sync, unsigned, a | b)
EMU_FOLD(__reduce_xor_sync, unsigned, a ^ b)
#undef EMU_FOLD
#define EMU_FOLD_INT(name, expr)                                                  \
    struct emu_foldi##name { int operator()(int a, int b) const { return expr; } }; \
    static inline int name(unsigned mask, int v, EMU_HERE)                        \
    {                                                                             \
        emu_collective(mask, &v, emu_resolve_fold<int, emu_foldi##name>, #name, here); \
        return v;                                                                 \
    }
EMU_FOLD_INT(__reduce_add_sync, (int)((unsigned)a + b))
EMU_FOLD_INT(__reduce_max_sync, a > b ? a : b)
EMU_FOLD_INT(__reduce_min_sync, a < b ? a : b)
#undef EMU_FOLD_INT

static inline unsigned __ballot_sync(unsigned mask, int p, EMU_HERE)
{
    return __reduce_or_sync(mask, p ? 1u << emu_self->lane : 0u, here);
}
static inline int __any_sync(unsigned mask, int p, EMU_HERE)
{
    return __ballot_sync(mask, p, here) != 0;
}
static inline int __all_sync(unsigned mask, int p, EMU_HERE)
{
    return __ballot_sync(mask, !p, here) == 0;
}

/* ---- memory ---- */

template <typename T> static inline T __ldg(const T *p) { return *p; }
template <typename T> static inline T __ldcg(const T *p) { return *p; }
template <typename T> static inline T __ldcs(const T *p) { return *p; }
template <typename T> static inline void __stcs(T *p, T x) { *p = x; }
static inline void __threadfence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block(void) {}
static inline void __nanosleep(unsigned) { emu_yield(); }
/* a clock of 1 GHz */
static inline long long clock64(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* *p = f(*p), atomically among the host's threads; returns the old value. */
template <typename T, typename F> static inline T emu_atomic(T *p, F f)
{
    T old, want;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    do
        want = f(old);
    while (!__atomic_compare_exchange(p, &old, &want, 1, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    return old;
}
template <typename T> using emu_same = typename std::enable_if<true, T>::type;
#define EMU_ATOMIC(name, expr)                                                    \
    template <typename T> static inline T name(T *p, emu_same<T> v)               \
    {                                                                             \
        return emu_atomic(p, [=](T old) -> T { return expr; });                   \
    }
EMU_ATOMIC(atomicAdd, old + v)
EMU_ATOMIC(atomicSub, old - v)
EMU_ATOMIC(atomicMax, old < v ? v : old)
EMU_ATOMIC(atomicMin, v < old ? v : old)
EMU_ATOMIC(atomicAnd, old & v)
EMU_ATOMIC(atomicOr, old | v)
EMU_ATOMIC(atomicXor, old ^ v)
EMU_ATOMIC(atomicExch, v)
#undef EMU_ATOMIC
template <typename T> static inline T atomicCAS(T *p, emu_same<T> was, emu_same<T> v)
{
    return emu_atomic(p, [=](T old) -> T { return old == was ? v : old; });
}

/* ---- arithmetic: the approximations are exact here ---- */

template <typename A, typename B> static inline typename std::common_type<A, B>::type min(A a, B b)
{
    return b < a ? b : a;
}
template <typename A, typename B> static inline typename std::common_type<A, B>::type max(A a, B b)
{
    return a < b ? b : a;
}
#define __expf expf            /* glibc has functions of these names */
#define __exp10f exp10f
#define __logf logf
#define __log2f log2f
#define __sinf sinf
#define __cosf cosf
#define __powf powf
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1 / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
/* x y + z rounded down.  The product is exact in double; `sum` and its rounding error `left` are
   the exact sum.  The result is the float nearest to sum, or the next one below it. */
static inline float __fmaf_rd(float x, float y, float z)
{
    double product = (double)x * y, sum = product + z, other = sum - product;
    double left = (product - (sum - other)) + (z - other);
    float near = (float)sum;
    return near > sum || (near == sum && left < 0) ? nextafterf(near, -INFINITY) : near;
}
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
/* sine and cosine of pi x; the remainder of x modulo 1/2 is exact */
static inline void sincospi(double x, double *sine, double *cosine)
{
    double half = nearbyint(2 * x), left = (x - half / 2) * M_PI;
    double s = sin(left), c = cos(left);
    int quarter = (int)fmod(half, 4) & 3;
    *sine = quarter == 0 ? s : quarter == 1 ? c : quarter == 2 ? -s : -c;
    *cosine = quarter == 0 ? c : quarter == 1 ? -s : quarter == 2 ? -c : s;
}
static inline double rsqrt(double x) { return 1 / sqrt(x); }
static inline float __saturatef(float x) { return x > 0 ? x < 1 ? x : 1 : 0; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static inline int __float2int_rn(float x) { return (int)nearbyintf(x); }

template <typename To, typename From> static inline To emu_bits(From x)
{
    static_assert(sizeof(To) == sizeof(From), "size");
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}
static inline int __float_as_int(float x) { return emu_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return emu_bits<unsigned>(x); }
static inline float __int_as_float(int x) { return emu_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return emu_bits<float>(x); }

/* ---- 16 bits: round to nearest, ties to even; NaN is 0x7fff ---- */

struct __nv_bfloat16 { unsigned short x; };
struct __half { unsigned short x; };
struct __align__(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
struct __align__(4) __half2 { __half x, y; };
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
typedef __half half;
typedef __half2 half2;

/* (Inlined: GCC's -fsanitize=thread does not see the store of a struct that a call returns.) */
static __forceinline__ __nv_bfloat16 __float2bfloat16(float f)
{
    uint32_t u = emu_bits<uint32_t>(f);
    if ((u & 0x7fffffff) > 0x7f800000)
        return {0x7fff};
    return {(unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16)};
}
static inline float __bfloat162float(__nv_bfloat16 h) { return emu_bits<float>((uint32_t)h.x << 16); }

static __forceinline__ __half __float2half(float f)
{
    uint32_t u = emu_bits<uint32_t>(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000)
        return {0x7fff};
    if (a >= 0x477ff000)                                   /* rounds to 65536 or more */
        return {(unsigned short)(sign | 0x7c00)};
    if (a < 0x38800000) {                                  /* subnormal: multiples of 2^-24 */
        float m = emu_bits<float>(a) + 0.5f;               /* ulp(0.5) is 2^-24 */
        return {(unsigned short)(sign | (emu_bits<uint32_t>(m) - 0x3f000000))};
    }
    return {(unsigned short)(sign | ((a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13))};
}
static inline float __half2float(__half h)
{
    uint32_t sign = (uint32_t)(h.x & 0x8000) << 16, e = h.x >> 10 & 31, m = h.x & 0x3ff;
    if (e == 31)
        return emu_bits<float>(m ? 0x7fffffffu : sign | 0x7f800000);
    if (e == 0)
        return emu_bits<float>(sign | emu_bits<uint32_t>(m * 0x1p-24f));
    return emu_bits<float>(sign | (e + 112) << 23 | m << 13);
}

#define EMU_16(T, T2, name, name2, to2)                                           \
    static inline T __float2##name##_rn(float x) { return __float2##name(x); }    \
    static inline float __low2float(T2 h) { return __##name##2float(h.x); }       \
    static inline float __high2float(T2 h) { return __##name##2float(h.y); }      \
    static inline T __low2##name(T2 h) { return h.x; }                            \
    static inline T __high2##name(T2 h) { return h.y; }                           \
    static inline T2 __floats2##name2##_rn(float x, float y)                      \
    {                                                                             \
        return {__float2##name(x), __float2##name(y)};                            \
    }                                                                             \
    static inline T2 __float22##name2##_rn(float2 f) { return __floats2##name2##_rn(f.x, f.y); } \
    static inline T2 __float2##name2##_rn(float f) { return __floats2##name2##_rn(f, f); } \
    static inline float2 __##to2##2float2(T2 h) { return {__low2float(h), __high2float(h)}; }
EMU_16(__nv_bfloat16, __nv_bfloat162, bfloat16, bfloat162, bfloat162)
EMU_16(__half, __half2, half, half2, half2)
#undef EMU_16
static __forceinline__ __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
static __forceinline__ __half2 __halves2half2(__half x, __half y) { return {x, y}; }
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) { return h.x; }
static inline unsigned short __half_as_ushort(__half h) { return h.x; }
static __forceinline__ __nv_bfloat16 __ushort_as_bfloat16(unsigned short u) { return {u}; }
static __forceinline__ __half __ushort_as_half(unsigned short u) { return {u}; }

/* ---- the runtime ---- */

enum cudaError_t {
    cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9, cudaErrorNoDevice = 100, cudaErrorInvalidDevice = 101, cudaErrorNotReady = 600,
    cudaErrorLaunchFailure = 719, cudaErrorCooperativeLaunchTooLarge = 720,
    cudaErrorNotSupported = 801,
};
enum cudaMemcpyKind {
    cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice, cudaMemcpyDefault,
};
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
    cudaFuncAttributeNonPortableClusterSizeAllowed = 13,
};
enum { cudaStreamDefault, cudaStreamNonBlocking };
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
typedef struct emu_stream *cudaStream_t;
typedef struct emu_event *cudaEvent_t;
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    size_t reservedSharedMemPerBlock;
    int regsPerBlock, warpSize, maxThreadsPerBlock, multiProcessorCount, major, minor, l2CacheSize;
    int maxThreadsPerMultiProcessor, cooperativeLaunch, clusterLaunch;
};
enum cudaLaunchAttributeID {
    cudaLaunchAttributeCooperative = 2, cudaLaunchAttributeClusterDimension = 4,
    cudaLaunchAttributeProgrammaticStreamSerialization = 6,
};
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    struct {
        struct { unsigned x, y, z; } clusterDim;
        int cooperative, programmaticStreamSerializationAllowed;
    } val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};

enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice,
                      cudaMemoryTypeManaged };
struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
};
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *, const void *);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorString(cudaError_t);
const char *cudaGetErrorName(cudaError_t);
cudaError_t cudaGetDeviceCount(int *);
cudaError_t cudaGetDevice(int *);
cudaError_t cudaSetDevice(int);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *, int);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaMemGetInfo(size_t *free, size_t *total);
cudaError_t emu_malloc(void **, size_t);
cudaError_t cudaFree(void *);
cudaError_t cudaFreeHost(void *);
cudaError_t cudaMemcpy(void *, const void *, size_t, cudaMemcpyKind);
cudaError_t cudaMemcpyAsync(void *, const void *, size_t, cudaMemcpyKind, cudaStream_t = NULL);
cudaError_t cudaMemset(void *, int, size_t);
cudaError_t cudaMemsetAsync(void *, int, size_t, cudaStream_t = NULL);
cudaError_t cudaStreamCreate(cudaStream_t *);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned);
cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0);
cudaError_t cudaEventCreate(cudaEvent_t *);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *, unsigned);
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = NULL);
cudaError_t cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaEventElapsedTime(float *, cudaEvent_t, cudaEvent_t);
cudaError_t emu_func_attribute(cudaFuncAttribute, int);
cudaError_t emu_launch(const cudaLaunchConfig_t *, const char *name, void (*body)(void *), void *);

template <typename T> static inline cudaError_t cudaMalloc(T **p, size_t n)
{
    return emu_malloc((void **)p, n);
}
template <typename T> static inline cudaError_t cudaMallocAsync(T **p, size_t n, cudaStream_t)
{
    return emu_malloc((void **)p, n);
}
static inline cudaError_t cudaFreeAsync(void *p, cudaStream_t) { return cudaFree(p); }
template <typename T> static inline cudaError_t cudaMallocHost(T **p, size_t n, unsigned = 0)
{
    return (*p = (T *)malloc(n)) ? cudaSuccess : cudaErrorMemoryAllocation;
}
template <typename T>
static inline cudaError_t cudaFuncSetAttribute(T *, cudaFuncAttribute a, int value)
{
    return emu_func_attribute(a, value);
}
template <typename T>
static inline cudaError_t cudaMemcpyToSymbol(T &to, const void *from, size_t n, size_t offset = 0)
{
    return memcpy((char *)&to + offset, from, n), cudaSuccess;
}
/* one block per SM, of any kernel */
template <typename T>
static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, T *, int, size_t)
{
    return *n = 1, cudaSuccess;
}

/* two clusters, so that a grid has more clusters than are active */
template <typename T>
static inline cudaError_t cudaOccupancyMaxActiveClusters(int *n, T *, const cudaLaunchConfig_t *)
{
    return *n = 2, cudaSuccess;
}

/* runs kernel(args...) in every thread */
template <typename F> static inline cudaError_t emu_start(const cudaLaunchConfig_t *c, const char *name, F body)
{
    return emu_launch(c, name, [](void *f) { (*(F *)f)(); }, &body);
}
template <typename... P, typename... A>
static inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *c, void (*kernel)(P...), A... a)
{
    return emu_start(c, "kernel", [=] { kernel(a...); });
}
template <typename... P, size_t... I>
static inline cudaError_t emu_cooperative(const cudaLaunchConfig_t *c, void (*kernel)(P...), void **a,
                                          std::integer_sequence<size_t, I...>)
{
    return emu_start(c, "kernel", [=] { kernel(*(P *)a[I]...); });
}
template <typename... P>
static inline cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(P...), dim3 grid, dim3 block,
                                                      void **a, size_t shared = 0,
                                                      cudaStream_t stream = NULL)
{
    cudaLaunchAttribute coop = {cudaLaunchAttributeCooperative, {{0, 0, 0}, 1, 0}};
    cudaLaunchConfig_t c = {grid, block, shared, stream, &coop, 1};
    return emu_cooperative(&c, kernel, a, std::index_sequence_for<P...>());
}

struct emu_config {
    cudaLaunchConfig_t c;
    emu_config(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = NULL)
        : c{grid, block, shared, stream, NULL, 0} {}
};
template <typename F> static inline auto emu_prepare(F kernel, const char *name, emu_config config)
{
    return [=](auto... a) { emu_start(&config.c, name, [=] { kernel(a...); }); };
}

/* k<<<grid, block, ...>>> (args)  becomes  EMU_LAUNCH((k), grid, block, ...)(args) */
#define EMU_LAUNCH(k, ...) \
    emu_prepare([=](auto... emu_a) { (k)(emu_a...); }, #k, emu_config(__VA_ARGS__))
/* __shared__ T name[n][m];  becomes  EMU_SHARED(T, name, [n][m]); */
#define EMU_SHARED(T, name, dims)                                                 \
    static char name##_key;                                                       \
    using name##_type = T dims;                                                   \
    name##_type &name = *(name##_type *)emu_shared(&name##_key, sizeof(name##_type))
/* extern __shared__ T name[];  becomes  EMU_DYNAMIC(T, name); */
#define EMU_DYNAMIC(T, name) T *const name = (T *)emu_self->block->dynamic

/* ---- cooperative groups ---- */

namespace cooperative_groups {
struct thread_block {
    void sync(EMU_HERE) const { emu_block_barrier(0, "block.sync", here); }
    unsigned thread_rank() const
    {
        return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    }
    unsigned size() const { return blockDim.x * blockDim.y * blockDim.z; }
};
struct grid_group {
    void sync(EMU_HERE) const { emu_gang_barrier("grid.sync", here); }
};
struct cluster_group {
    void sync(EMU_HERE) const { emu_gang_barrier("cluster.sync", here); }
    unsigned block_rank() const { return emu_self->block->rank; }
    unsigned num_blocks() const { return emu_gang_size(); }
    template <typename T> T *map_shared_rank(T *p, unsigned rank) const
    {
        return (T *)emu_map_shared(p, rank);
    }
};
static inline thread_block this_thread_block() { return {}; }
static inline grid_group this_grid() { return {}; }
static inline cluster_group this_cluster() { return {}; }
}

#endif
