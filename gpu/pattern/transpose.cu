/* out[b,j,i] = x[b,i,j]: x [B,M,N], out [B,N,M].  Entries of several elements are moved by the
 * kernels of transpose_entries.cu; here `naive` alone does that too.
 *
 * Each block transposes one square tile; backward is forward with the axes exchanged.  The grid has
 * one axis, because the others are limited to 65535 blocks. */
#include "gpu/device/segment.cuh"
#include "gpu/pattern/transpose.cuh"

enum {
    SIDE = 32,    /* side of a tile that is moved by elements, in elements */
    ROWS = 8,     /* rows of this tile that a block moves per step */
    VECTORS = 16, /* side of a tile that is moved by vectors, in vectors */
    THREADS = 256 /* threads of a block that moves vectors, or entries */
};

/* ---- tiles ---- */

/* The number of tiles in a column of tiles of a matrix, and in a row of tiles. */
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

/* ---- element by element ---- */

/* Neighbouring threads read neighbouring columns: reads are coalesced, but writes have a stride of
 * one row. */
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

/* Entries of D elements: a thread per element of out. */
template <typename T>
__global__ void naive_entries(T *out, const T *x, matrices s)
{
    const int64_t to = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t entry = to / s.D, column = entry / s.M, b = column / s.N;
    const int64_t d = to % s.D, i = entry % s.M, j = column % s.N;

    if (b < s.B)
        out[to] = x[((b * s.M + i) * s.N + j) * s.D + d];
}

/* The tile is transposed through shared memory, so that reads and writes are both coalesced.  PAD =
 * 1 puts the elements of a column into different banks: no bank conflicts. */
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

/* Column c of a square of WIDTH<T> vectors, as a vector. */
template <typename T>
static __device__ __forceinline__ vec<T> column(const vec<T> (&row)[WIDTH<T>], int c)
{
    vec<T> to;
    #pragma unroll 4
    for (int i = 0; i < 4; i++) {
        if (storage<T>::PER_WORD == 1) {
            to.word[i] = row[i].word[c];
            continue;
        }
        const unsigned first = row[2 * i % WIDTH<T>].word[c / 2];
        const unsigned second = row[(2 * i + 1) % WIDTH<T>].word[c / 2];
        to.word[i] = c % 2 ? first >> 16 | (second & 0xffff0000) : (first & 0xffff) | second << 16;
    }
    return to;
}

/* The transposed tile in shared memory: 16 x 16 squares, whose side is one vector.  The swizzle
 * puts vector u of a row at position u ^ (row / ELEMENTS).  So there are no bank conflicts
 * between the vectors of a row, nor between vectors at the same position of neighbouring
 * squares. */
template <typename T>
struct transposed_tile {
    enum { ELEMENTS = WIDTH<T>, TILE = VECTORS * ELEMENTS };

    static __device__ __forceinline__ vec<T> *at(vec<T> *tile, int row, int u)
    {
        return tile + row * VECTORS + (u ^ (row / ELEMENTS));
    }
};

/* A thread transposes a square of vectors in registers, so that global reads and writes both move
 * whole words, in rows of 256 bytes.  WHOLE_IN, WHOLE_OUT: the rows of x, or of out, are a multiple of
 * 16 bytes long. */
template <typename T, bool WHOLE_IN, bool WHOLE_OUT>
__global__ void __launch_bounds__(THREADS)
    vectors(T *out, const T *x, int64_t M, int64_t N, tiling tiles)
{
    typedef transposed_tile<T> in;
    enum { ELEMENTS = in::ELEMENTS, TILE = in::TILE };
    __shared__ vec<T> square[TILE * VECTORS];
    const tile t = tile_of(tiles, TILE);
    const int down = threadIdx.x / VECTORS, across = threadIdx.x % VECTORS;
    const int columns = (int)min(N - t.j, (int64_t)1 << 30),
              rows = (int)min(M - t.i, (int64_t)1 << 30);
    vec<T> row[ELEMENTS];

    x += t.matrix * M * N + t.i * N + t.j;
    out += t.matrix * M * N + t.j * M + t.i;
    #pragma unroll ELEMENTS
    for (int r = 0; r < ELEMENTS; r++) {
        const int i = down * ELEMENTS + r;
        vec<T> v[1];
        load_vectors<WHOLE_IN>(v, x + i * N, i < rows ? columns : 0, 0, across, VECTORS, 0);
        row[r] = v[0];
    }
    #pragma unroll ELEMENTS
    for (int c = 0; c < ELEMENTS; c++)
        *in::at(square, across * ELEMENTS + c, down) = column<T>(row, c);
    __syncthreads();
    #pragma unroll ELEMENTS
    for (int n = 0; n < ELEMENTS; n++) {
        const int r = n * (THREADS / VECTORS) + down;
        const vec<T> v = *in::at(square, r, across);
        if constexpr (WHOLE_OUT) {
            if (r < columns && across * ELEMENTS < rows)
                store_global(out + r * M + across * ELEMENTS, v);
        } else {
            vec<T> one[1] = {v};
            store_segment(out + r * M, one, r < columns ? rows : 0, across, VECTORS);
        }
    }
}

/* ---- launches ---- */

template <typename T>
static int naive_transpose(struct context *on, void *to, const void *from, const matrices &s)
{
    if (s.D > 1) {
        const unsigned blocks = (unsigned)ceil_div(s.B * s.M * s.N * s.D, THREADS);
        naive_entries<T><<<blocks, THREADS, 0, on->stream>>>((T *)to, (const T *)from, s);
        return cudaGetLastError();
    }
    const tiling t = tiling_of(s.M, s.N, SIDE);
    const dim3 grid(s.B * t.down * t.across), block(SIDE, ROWS);
    naive<T><<<grid, block, 0, on->stream>>>((T *)to, (const T *)from, s.M, s.N, t);
    return cudaGetLastError();
}

template <typename T, int PAD>
static int shared_transpose(struct context *on, void *to, const void *from, const matrices &s)
{
    const tiling t = tiling_of(s.M, s.N, SIDE);
    const dim3 grid(s.B * t.down * t.across), block(SIDE, ROWS);
    turned<T, PAD><<<grid, block, 0, on->stream>>>((T *)to, (const T *)from, s.M, s.N, t);
    return cudaGetLastError();
}

template <typename T>
static int tiled_transpose(struct context *on, void *to, const void *from, const matrices &s)
{
    return shared_transpose<T, 0>(on, to, from, s);
}

template <typename T>
static int padded_transpose(struct context *on, void *to, const void *from, const matrices &s)
{
    return shared_transpose<T, 1>(on, to, from, s);
}

template <typename T>
static int vector_transpose(struct context *on, void *to, const void *from, const matrices &s)
{
    const tiling t = tiling_of(s.M, s.N, transposed_tile<T>::TILE);
    const dim3 grid(s.B * t.down * t.across);
    const bool in = in_vectors<T>(s.N), out = in_vectors<T>(s.M);
    const auto kernel = in    ? out ? vectors<T, true, true> : vectors<T, true, false>
                           : out ? vectors<T, false, true>
                              : vectors<T, false, false>;
    kernel<<<grid, THREADS, 0, on->stream>>>((T *)to, (const T *)from, s.M, s.N, t);
    return cudaGetLastError();
}

template <int TILE>
static const char *declines(const struct call *f)
{
    if (DIM(f, 'D') > 1)
        return "width > 1: entries of several elements";
    const int64_t tiles = ceil_div(DIM(f, 'M'), TILE) * ceil_div(DIM(f, 'N'), TILE);
    return tiles > MAX_BLOCKS / DIM(f, 'B') ? "more tiles than a grid has blocks (2147483647)"
                                            : NULL;
}

static const char *naive_declines(const struct call *f)
{
    if (DIM(f, 'D') == 1)
        return declines<SIDE>(f);
    return op_count(f, PLACE(transpose, x)) > (int64_t)MAX_BLOCKS * THREADS
               ? "more elements than the threads of a grid"
               : NULL;
}

/* Measured on an H100: if a matrix is narrower than a tile, most of the tile is empty.  Then squares of
 * 32 are faster than those of vectors, unless rows are whole vectors; and the narrowest are fastest
 * element by element. */
static int64_t narrow_side(const struct call *f)
{
    return min(DIM(f, 'M'), DIM(f, 'N'));
}
template <typename T>
static int vector_yields(const struct call *f)
{
    return narrow_side(f) < SIDE && !in_vectors<T>(narrow_side(f));
}
OF_CALL(int, padded_yields, narrow_side(f) <= 8)

GPU_KERNEL(naive, .idea = "one thread per element, writes with the stride of a row",
           .pass = {forward<naive_transpose<T>>, backward<naive_transpose<T>>},
           .declines = naive_declines);
GPU_KERNEL(tiled, .idea = "tiles of 32 x 32 transposed in shared memory",
           .pass = {forward<tiled_transpose<T>>, backward<tiled_transpose<T>>},
           .declines = declines<SIDE>);
GPU_KERNEL(padded, .idea = "its rows padded to 33: no bank conflicts",
           .pass = {forward<padded_transpose<T>>, backward<padded_transpose<T>>},
           .declines = declines<SIDE>, .yields = padded_yields);
GPU_KERNEL(vector, .idea = "16 bytes on both sides, squares of them transposed in registers",
           .pass = {forward<vector_transpose<T>>, backward<vector_transpose<T>>},
           .declines = declines<transposed_tile<T>::TILE>, .yields = vector_yields<T>);

#define OF_ENTRIES(T) &entries_in_tiles<T>::kernel, &entries_alone<T>::kernel,
GPU_KERNELS(transpose, IN_TYPES(vector) IN_TYPES(padded) GPU_TYPES(OF_ENTRIES) IN_TYPES(naive)
                           IN_TYPES(tiled));
