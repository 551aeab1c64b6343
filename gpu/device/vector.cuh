/* vector.cuh - 16-byte vectors of a tensor's elements: the widest load and store of a thread; and
 * four elements as one. */
#ifndef VECTOR_CUH
#define VECTOR_CUH

#include "gpu/gpu.cuh"

/* Elements per vector. */
template <typename T>
static constexpr int WIDTH = sizeof(uint4) / sizeof(T);

/* Do rows of so many elements consist of whole vectors?  (Tensors are aligned to 16 bytes.) */
template <typename T>
static inline __host__ __device__ bool in_vectors(int64_t columns)
{
    return columns % WIDTH<T> == 0;
}

template <typename T>
struct vector;

template <>
struct vector<float> {
    static __device__ __forceinline__ void unpack(const uint4 &v, float x[4])
    {
        x[0] = __uint_as_float(v.x);
        x[1] = __uint_as_float(v.y);
        x[2] = __uint_as_float(v.z);
        x[3] = __uint_as_float(v.w);
    }

    static __device__ __forceinline__ uint4 pack(const float x[4])
    {
        return make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                          __float_as_uint(x[3]));
    }
};

/* A bf16 is the upper half of a float; the first of two is the lower half of a word. */
template <>
struct vector<__nv_bfloat16> {
    static __device__ __forceinline__ void unpack(unsigned pair, float x[2])
    {
        x[0] = __uint_as_float(pair << 16);
        x[1] = __uint_as_float(pair & 0xffff0000);
    }

    static __device__ __forceinline__ void unpack(const uint4 &v, float x[8])
    {
        unpack(v.x, x);
        unpack(v.y, x + 2);
        unpack(v.z, x + 4);
        unpack(v.w, x + 6);
    }

    static __device__ __forceinline__ unsigned pack(float first, float second)
    {
        const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
        unsigned word;
        memcpy(&word, &both, sizeof word);
        return word;
    }

    static __device__ __forceinline__ uint4 pack(const float x[8])
    {
        return make_uint4(pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7]));
    }
};

/* Four neighbouring elements. */
template <typename T>
struct alignas(4 * sizeof(T)) four {
    T x[4];
};

/* From `column` on into a row of so many columns, as many as it has. */
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
