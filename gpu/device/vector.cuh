/* vector.cuh - N neighbouring elements of a tensor, in the type of the tensor.
 *
 * A vec has them as loaded, in words that are unpacked only where they are used, so that the load
 * stays in flight until then.  A load or store has 16 bytes if the length of rows is a multiple of
 * 16 bytes, else one element: a kernel is a template on WIDE and is written once for both, with
 * vectors of WIDTH<T, WIDE> elements.  (Tensors are aligned to 16 bytes.)
 *
 * An array has them one by one, to compute with. */
#ifndef VECTOR_CUH
#define VECTOR_CUH

#include "gpu/gpu.cuh"

/* Elements per vector. */
template <typename T, bool WIDE = true>
static constexpr int WIDTH = WIDE ? 16 / sizeof(T) : 1;

/* The alignment of an access to so many bytes: the largest power of two, up to 16, that divides
 * them. */
static constexpr size_t access_alignment(size_t bytes)
{
    return (bytes | 16) & -(bytes | 16);
}

template <typename T, int N = WIDTH<T>>
struct alignas(access_alignment(N * sizeof(T))) vec {
    static_assert(N * sizeof(T) >= 4, "a vector of half a word is a specialisation");
    unsigned word[N * sizeof(T) / 4];

    /* Element i. */
    __device__ __forceinline__ float operator[](int i) const
    {
        enum { PER_WORD = storage<T>::PER_WORD };
        return storage<T>::element(word[i / PER_WORD], i % PER_WORD);
    }
};

template <>
struct vec<__nv_bfloat16, 1> {
    __nv_bfloat16 x;

    __device__ __forceinline__ float operator[](int) const { return load(&x); }
};

/* The vector whose element i is x(i). */
template <typename T, int N = WIDTH<T>, typename F>
static __device__ __forceinline__ vec<T, N> make_vec(const F &x)
{
    const auto word = [&](int i) { return storage<T>::word(i, x); };
    if constexpr (N * sizeof(T) == 16)
        return {{word(0), word(1), word(2), word(3)}};
    else if constexpr (N * sizeof(T) == 8)
        return {{word(0), word(1)}};
    else if constexpr (N * sizeof(T) == 4)
        return {{word(0)}};
    else
        return {storage<T>::narrow(x(0))};
}

template <typename T, int N = WIDTH<T>>
static __device__ __forceinline__ vec<T, N> pack(const float *x)
{
    return make_vec<T, N>([&](int i) { return x[i]; });
}

template <typename T, int N>
static __device__ __forceinline__ void unpack(const vec<T, N> &v, float *x)
{
    #pragma unroll 8
    for (int i = 0; i < N; i++)
        x[i] = v[i];
}

template <int N, typename T>
static __device__ __forceinline__ vec<T, N> load_vec(const T *from)
{
    return *(const vec<T, N> *)from;
}

/* Zeros unless `valid`.  The address is selected, not the value, so that there is no branch, and
 * several loads are in flight. */
template <typename T, int N>
static __device__ __forceinline__ vec<T, N> load_vec(const vec<T, N> *from, bool valid)
{
    static const vec<T, N> zeros = {};
    return *(valid ? from : &zeros);
}

/* The first n of N elements, one by one; zeros for the others. */
template <int N, typename T>
static __device__ __forceinline__ vec<T, N> gather_vec(const T *from, int n)
{
    vec<T, N> v;
    #pragma unroll 4
    for (int i = 0; i < (int)(N * sizeof(T) / 4); i++)
        if constexpr (storage<T>::PER_WORD == 1) {
            v.word[i] = i < n ? __float_as_uint(from[i]) : 0;
        } else {
            const unsigned short *bits = (const unsigned short *)from;
            v.word[i] = (2 * i < n ? bits[2 * i] : 0) | (2 * i + 1 < n ? bits[2 * i + 1] : 0) << 16;
        }
    return v;
}

template <typename T, int N>
static __device__ __forceinline__ void store_vec(T *to, const vec<T, N> &v)
{
    *(vec<T, N> *)to = v;
}

/* The same for what this kernel and those close behind it do not read: the L2 cache evicts it first. */
template <typename T, int N>
static __device__ __forceinline__ void store_stream(T *to, const vec<T, N> &v)
{
    if constexpr (sizeof v == 16)
        __stcs((uint4 *)to, make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]));
    else
        store_vec(to, v);
}

/* Stores 16 bytes to global memory in one access.  (The compiler may split an assignment into stores
 * of the words.) */
template <typename T>
static __device__ __forceinline__ void store_global(T *to, const vec<T> &v)
{
#ifdef __CUDACC__
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.word[0]),
                 "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
                 : "memory");
#else
    store_vec(to, v);
#endif
}

/* Two neighbours. */
template <typename T>
static __device__ __forceinline__ float2 load_pair(const T *from)
{
    const vec<T, 2> both = load_vec<2>(from);
    return make_float2(both[0], both[1]);
}

template <typename T>
static __device__ __forceinline__ void store_pair(T *to, float first, float second)
{
    const float both[] = {first, second};
    store_vec(to, pack<T, 2>(both));
}

/* Does a row of n elements consist of whole vectors? */
template <typename T>
static inline __host__ __device__ bool in_vectors(int64_t n)
{
    return n % WIDTH<T> == 0;
}

/* The number of accesses for a row of n elements. */
template <typename T>
static inline int64_t accesses(int64_t n)
{
    return in_vectors<T>(n) ? n / WIDTH<T> : n;
}

/* ---- elements one by one ---- */

/* (An array that no single access loads or stores can have a smaller ALIGNMENT.) */
template <typename T, int N, size_t ALIGNMENT = access_alignment(N * sizeof(T))>
struct alignas(ALIGNMENT) array {
    T x[N];
};

template <typename T>
using four = array<T, 4>;

template <int N, typename T>
static __device__ __forceinline__ array<T, N> load_array(const T *from)
{
    return *(const array<T, N> *)from;
}

template <typename T, int N>
static __device__ __forceinline__ void store_array(T *to, const array<T, N> &a)
{
    *(array<T, N> *)to = a;
}

/* Stores to a row from `column` on, as many elements as the row has there. */
template <typename T>
static __device__ void store_four(T *row, int columns, int column, const four<T> &f)
{
    if (columns % 4 == 0 && column < columns)
        *(four<T> *)(row + column) = f;
    else
        for (int j = 0; j < 4 && column + j < columns; j++)
            row[column + j] = f.x[j];
}

#endif
