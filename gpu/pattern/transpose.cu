/* Each kernel moves a square tile a block, and backward is forward with the axes exchanged.
 * The grid has one axis, because the others end at 65535. */
#include "common/ops/transpose.h"
#include "gpu/device/unit.cuh"
#include "gpu/gpu.cuh"

enum {
    SIDE = 32,        /* of a tile that is moved number by number */
    ROWS = 8,         /* of it that a block moves at once */
    UNITS = 16,       /* of 16 bytes: the side of a tile that is moved by them */
    THREADS = 256,    /* that do */
    MOST = 0x7fffffff /* blocks of a grid */
};

/* ---- tiles ---- */

/* How many tiles a matrix has down its rows and across its columns. */
struct tiling {
    unsigned down, across;
};

static tiling tiling_of(int64_t M, int64_t N, int side)
{
    return {(unsigned)ceil_div(M, side), (unsigned)ceil_div(N, side)};
}

/* A block's tile: its matrix, and its first row and column. */
struct tile {
    int64_t matrix, i, j;
};

static __device__ tile tile_of(const tiling &t, int side)
{
    const unsigned row = blockIdx.x / t.across, matrix = row / t.down;
    return {matrix, (int64_t)(row - matrix * t.down) * side,
            (int64_t)(blockIdx.x - row * t.across) * side};
}

/* ---- number by number ---- */

/* Neighbouring threads read neighbouring columns, and so write numbers that lie a row apart. */
template <typename T>
__global__ void naive(T *out, const T *x, int64_t M, int64_t N, tiling tiles)
{
    const tile t = tile_of(tiles, SIDE);
    const int64_t j = t.j + threadIdx.x;

    x += t.matrix * M * N;
    out += t.matrix * M * N;
    #pragma unroll (SIDE / ROWS)
    for (int r = threadIdx.y; r < SIDE; r += ROWS)
        if (t.i + r < M && j < N)
            out[j * M + t.i + r] = x[(t.i + r) * N + j];
}

/* Through shared memory, where a tile is turned: neighbouring threads read and write neighbours
 * in memory.  With PAD of one, the numbers of a column lie in different banks, too. */
template <typename T, int PAD>
__global__ void turned(T *out, const T *x, int64_t M, int64_t N, tiling tiles)
{
    __shared__ T square[SIDE][SIDE + PAD];
    const tile t = tile_of(tiles, SIDE);
    const int column = threadIdx.x;

    x += t.matrix * M * N;
    out += t.matrix * M * N;
    #pragma unroll (SIDE / ROWS)
    for (int r = threadIdx.y; r < SIDE; r += ROWS)
        if (t.i + r < M && t.j + column < N)
            square[r][column] = x[(t.i + r) * N + t.j + column];
    __syncthreads();
    #pragma unroll (SIDE / ROWS)
    for (int r = threadIdx.y; r < SIDE; r += ROWS)
        if (t.j + r < N && t.i + column < M)
            out[(t.j + r) * M + t.i + column] = square[column][r];
}

/* ---- sixteen bytes at a time ---- */

/* Column c of as many rows as a unit has numbers. */
static __device__ __forceinline__ unit column(const unit (&row)[4], int c)
{
    unit to;
    #pragma unroll 4
    for (int i = 0; i < 4; i++)
        to.word[i] = row[i].word[c];
    return to;
}

static __device__ __forceinline__ unit column(const unit (&row)[8], int c)
{
    unit to;
    #pragma unroll 4
    for (int i = 0; i < 4; i++) {
        const unsigned first = row[2 * i].word[c / 2], second = row[2 * i + 1].word[c / 2];
        to.word[i] = c % 2 ? first >> 16 | (second & 0xffff0000) : (first & 0xffff) | second << 16;
    }
    return to;
}

/* A tile of 16 x 16 squares, whose side is a unit; turned, in shared memory.  Unit u of a row is
 * at u ^ (row / NUMBERS): neither the units of a row nor those of the same place in neighbouring
 * squares share banks. */
template <typename T>
struct turned_tile {
    enum { NUMBERS = 16 / sizeof(T), TILE = UNITS * NUMBERS };

    static __device__ __forceinline__ unit *at(unit *tile, int row, int u)
    {
        return tile + row * UNITS + (u ^ (row / NUMBERS));
    }
    static __device__ __forceinline__ T *number(unit *tile, int row, int column)
    {
        return (T *)at(tile, row, column / NUMBERS) + column % NUMBERS;
    }
};

/* A thread turns a square of units in its registers, so that memory sees whole units on both
 * sides: rows of 256 bytes, read and written.  Where the rows of a side are not of whole units,
 * that side goes number by number. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    units(T *out, const T *x, int64_t M, int64_t N, tiling tiles)
{
    typedef turned_tile<T> in;
    enum { NUMBERS = in::NUMBERS, TILE = in::TILE };
    __shared__ unit square[TILE * UNITS];
    const tile t = tile_of(tiles, TILE);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

    x += t.matrix * M * N;
    out += t.matrix * M * N;
    if (N % NUMBERS == 0) {
        const int down = threadIdx.x / UNITS, across = threadIdx.x % UNITS;
        const int64_t i = t.i + down * NUMBERS, j = t.j + across * NUMBERS;
        unit row[NUMBERS];
        #pragma unroll NUMBERS
        for (int r = 0; r < NUMBERS; r++)
            row[r] = i + r < M && j < N ? *(const unit *)(x + (i + r) * N + j) : unit{};
        #pragma unroll NUMBERS
        for (int c = 0; c < NUMBERS; c++)
            *in::at(square, across * NUMBERS + c, down) = column(row, c);
    } else {
        for (int r = warp; r < TILE && t.i + r < M; r += THREADS / 32) {
            #pragma unroll (TILE / 32)
            for (int c = lane; c < TILE; c += 32)
                if (t.j + c < N)
                    *in::number(square, c, r) = x[(t.i + r) * N + t.j + c];
        }
    }
    __syncthreads();
    if (M % NUMBERS == 0) {
        #pragma unroll NUMBERS
        for (int n = 0; n < NUMBERS; n++) {
            const int r = n * (THREADS / UNITS) + threadIdx.x / UNITS, u = threadIdx.x % UNITS;
            if (t.j + r < N && t.i + u * NUMBERS < M)
                *(unit *)(out + (t.j + r) * M + t.i + u * NUMBERS) = *in::at(square, r, u);
        }
    } else {
        for (int r = warp; r < TILE && t.j + r < N; r += THREADS / 32) {
            #pragma unroll (TILE / 32)
            for (int c = lane; c < TILE; c += 32)
                if (t.i + c < M)
                    out[(t.j + r) * M + t.i + c] = *in::number(square, r, c);
        }
    }
}

/* ---- launches ---- */

/* to [B,N,M] from [B,M,N] */
typedef int turn(void *to, const void *from, int64_t B, int64_t M, int64_t N);

template <typename T>
static int naive_turn(void *to, const void *from, int64_t B, int64_t M, int64_t N)
{
    const tiling t = tiling_of(M, N, SIDE);
    const dim3 grid(B * t.down * t.across), block(SIDE, ROWS);
    naive<T><<<grid, block, 0, gpu_stream()>>>((T *)to, (const T *)from, M, N, t);
    return cudaGetLastError();
}

template <typename T, int PAD>
static int shared_turn(void *to, const void *from, int64_t B, int64_t M, int64_t N)
{
    const tiling t = tiling_of(M, N, SIDE);
    const dim3 grid(B * t.down * t.across), block(SIDE, ROWS);
    turned<T, PAD><<<grid, block, 0, gpu_stream()>>>((T *)to, (const T *)from, M, N, t);
    return cudaGetLastError();
}

template <typename T>
static int unit_turn(void *to, const void *from, int64_t B, int64_t M, int64_t N)
{
    const tiling t = tiling_of(M, N, turned_tile<T>::TILE);
    const dim3 grid(B * t.down * t.across);
    units<T><<<grid, THREADS, 0, gpu_stream()>>>((T *)to, (const T *)from, M, N, t);
    return cudaGetLastError();
}

template <turn *TURN>
static int forward(const struct frame *f)
{
    const struct transpose *a = ARGS(f, transpose);
    return TURN(a->out, a->x, DIM(f, 'B'), DIM(f, 'M'), DIM(f, 'N'));
}

template <turn *TURN>
static int backward(const struct frame *f)
{
    const struct transpose *g = GRADS(f, transpose);
    return TURN(g->x, g->out, DIM(f, 'B'), DIM(f, 'N'), DIM(f, 'M'));
}

template <int TILE>
static const char *declines(const struct frame *f)
{
    const int64_t tiles = ceil_div(DIM(f, 'M'), TILE) * ceil_div(DIM(f, 'N'), TILE);
    return tiles > MOST / DIM(f, 'B') ? "more tiles than a grid has blocks (2147483647)" : NULL;
}

/* __VA_ARGS__ is its turn. */
#define RUNG(bits, rung, tile, idea, ...)                                                          \
    static const struct impl rung##bits = {                                                        \
        #rung, idea, {forward<__VA_ARGS__>, backward<__VA_ARGS__>}, NULL, declines<tile>, NULL,    \
        0,     0}

#define LADDER(bits, T)                                                                            \
    RUNG(bits, naive, SIDE, "a thread a number, writes a row apart", naive_turn<T>);               \
    RUNG(bits, tiled, SIDE, "tiles of 32 x 32 turned in shared memory", shared_turn<T, 0>);        \
    RUNG(bits, padded, SIDE, "its rows padded to 33: no bank twice", shared_turn<T, 1>);           \
    RUNG(bits, vector, turned_tile<T>::TILE,                                                       \
         "16 bytes on both sides, squares of them turned in registers", unit_turn<T>);             \
    GPU_KERNEL_LIST(transpose, bits, &vector##bits, &padded##bits, &tiled##bits, &naive##bits)

LADDER(32, float);
LADDER(16, __nv_bfloat16);
