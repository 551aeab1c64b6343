/* transpose of entries: out[b,j,i,:] = x[b,i,j,:], x [B,M,N,D], out [B,N,M,D], D > 1.
 *
 * An entry is moved in units, the widest of 16, 8, 4 and 2 bytes of which it is a multiple: then all
 * units of both tensors are aligned.  No type matters but for its size.
 *
 * Kernel `entries` has no tiles.  A row of out is M entries, and each comes from another row of x, so an
 * entry is as long as what is read at once.  Threads take the units of out in their order; long entries
 * that consist of no units of 8 bytes are moved by groups of lanes, 16 bytes a lane at any address
 * (gpu/device/segment.cuh).
 *
 * Kernel `entry_tiles` is for entries that are too short for this.  A block copies a tile of rows x
 * columns entries to shared memory, as parts of rows of x, and from there to parts of rows of out.  A
 * side whose rows begin at multiples of 16 bytes has accesses of 16 bytes, else of a unit. */
#include "gpu/device/divisor.cuh"
#include "gpu/device/segment.cuh"
#include "gpu/pattern/transpose.cuh"

enum {
    THREADS = 256,
    LONG_BYTES = 128,         /* an entry that is read well by itself */
    FEW_BYTES = 4096,         /* a matrix of which a block has all rows */
    MOST_ENTRIES = 0x7ffff000 /* in all matrices: so that the last block's are numbered, too */
};

/* ---- entries: unit by unit ---- */

/* Entries by their number in out, and in x. */
struct order {
    divisor M, N;

    __device__ __forceinline__ unsigned in_x(unsigned n) const
    {
        const unsigned column = M.quotient(n), i = n - column * M.by;
        const unsigned b = N.quotient(column), j = column - b * N.by;
        return (b * M.by + i) * N.by + j;
    }
};

/* A thread has PER_THREAD units, of neighbours one each: its loads are all in flight.  Where the
 * first one is takes the block's only division of 64 bits. */
template <typename U>
constexpr int PER_THREAD = sizeof(U) == 16 ? 4 : 8;

template <typename U>
__global__ void __launch_bounds__(THREADS)
    units(U *out, const U *x, order entries, divisor width, int64_t n)
{
    enum { EACH = PER_THREAD<U> };
    const int64_t begin = (int64_t)blockIdx.x * (THREADS * EACH);
    const unsigned first = (unsigned)(begin / width.by);
    const unsigned within = (unsigned)(begin - (int64_t)first * width.by) + threadIdx.x;
    U v[EACH];

    out += begin + threadIdx.x;
    n -= begin + threadIdx.x;
    #pragma unroll EACH
    for (int k = 0; k < EACH; k++) {
        const unsigned unit = within + k * THREADS, entry = width.quotient(unit);
        const int64_t from = (int64_t)entries.in_x(first + entry) * width.by;
        if (k * THREADS < n)
            v[k] = x[from + (unit - entry * width.by)];
    }
    #pragma unroll EACH
    for (int k = 0; k < EACH; k++)
        if (k * THREADS < n)
            out[k * THREADS] = v[k];
}

template <typename U>
static int launch_units(struct context *on, void *to, const void *from, const matrices &s,
                        int64_t width)
{
    const int64_t n = s.B * s.M * s.N * width;
    const unsigned blocks = (unsigned)ceil_div(n, THREADS * PER_THREAD<U>);
    units<<<blocks, THREADS, 0, on->stream>>>(
        (U *)to, (const U *)from, order{divisor_of(s.M), divisor_of(s.N)}, divisor_of(width), n);
    return cudaGetLastError();
}

/* ---- entries: 16 bytes at any address ---- */

/* Chunks of entries, each of as many vectors as a group has lanes. */
struct chunks {
    order entries;
    divisor per_entry;
    unsigned n;
    int lanes, D;
};

template <typename T>
struct chunk {
    T *to;
    const T *from;
    int n; /* elements to the end of its entry */
};

template <typename T>
static __device__ __forceinline__ chunk<T> chunk_of(T *out, const T *x, const chunks &p,
                                                    unsigned number)
{
    if (number >= p.n)
        return {out, x, 0};
    const unsigned entry = p.per_entry.quotient(number);
    const int begin = (int)(number - entry * p.per_entry.by) * p.lanes * WIDTH<T>;
    return {out + (int64_t)entry * p.D + begin, x + (int64_t)p.entries.in_x(entry) * p.D + begin,
            p.D - begin};
}

template <typename T>
__global__ void __launch_bounds__(THREADS) segments(T *out, const T *x, chunks p)
{
    enum { EACH = 2 };
    const int lane = threadIdx.x & (p.lanes - 1), groups = THREADS / p.lanes;
    const unsigned first = blockIdx.x * groups * EACH + threadIdx.x / p.lanes;
    chunk<T> own[EACH];
    vec<T> v[EACH][1], after[EACH];

    #pragma unroll EACH
    for (int k = 0; k < EACH; k++) {
        own[k] = chunk_of(out, x, p, first + k * groups);
        const int shift = misalignment(own[k].from), n = own[k].n;
        after[k] = load_words(v[k], own[k].from - shift, n ? n + shift : 0, lane, p.lanes);
    }
    #pragma unroll EACH
    for (int k = 0; k < EACH; k++) {
        join_words(v[k], after[k], misalignment(own[k].from), lane, p.lanes);
        store_segment(own[k].to, v[k], own[k].n, lane, p.lanes);
    }
}

/* A group for each entry of up to 32 vectors. */
template <typename T>
static chunks chunks_of(const matrices &s)
{
    const int64_t vectors = ceil_div(s.D, WIDTH<T>);
    int lanes = 1;
    while (lanes < 32 && lanes < vectors)
        lanes *= 2;
    const int64_t per_entry = ceil_div(vectors, lanes);
    return {{divisor_of(s.M), divisor_of(s.N)},
            divisor_of(per_entry),
            (unsigned)(s.B * s.M * s.N * per_entry),
            lanes,
            (int)s.D};
}

template <typename T>
static int launch_segments(struct context *on, void *to, const void *from, const matrices &s)
{
    const chunks p = chunks_of<T>(s);
    const unsigned blocks = (unsigned)ceil_div(p.n, THREADS / p.lanes * 2);
    segments<<<blocks, THREADS, 0, on->stream>>>((T *)to, (const T *)from, p);
    return cudaGetLastError();
}

/* ---- entries: launches ---- */

template <typename T>
static int transpose_alone(struct context *on, void *to, const void *from, const matrices &s)
{
    const int64_t bytes = s.D * sizeof(T);
    if (s.M == 1 || s.N == 1)
        return cudaMemcpyAsync(to, from, s.B * s.M * s.N * bytes, cudaMemcpyDeviceToDevice,
                               on->stream);
    if (bytes % 16 == 0)
        return launch_units<uint4>(on, to, from, s, bytes / 16);
    if (bytes % 8 == 0)
        return launch_units<uint2>(on, to, from, s, bytes / 8);
    if (bytes >= LONG_BYTES)
        return launch_segments<T>(on, to, from, s);
    if (bytes % 4 == 0)
        return launch_units<unsigned>(on, to, from, s, bytes / 4);
    return launch_units<unsigned short>(on, to, from, s, bytes / 2);
}

#define ONE_ELEMENT "width = 1: no entries of several elements"

/* (A chunk has at least 8 vectors, or is all of its entry's rest.) */
static const char *alone_declines(const struct call *f)
{
    const int64_t D = DIM(f, 'D'), entries = op_count(f, PLACE(transpose, x)) / D;
    if (D == 1)
        return ONE_ELEMENT;
    return entries > MOST_ENTRIES / ceil_div(D, 32) ? "more chunks of entries than 2147479552"
                                                    : NULL;
}

/* ---- entry_tiles ---- */

enum {
    TILE_BYTES = 24 << 10, /* of entries, at most: with what rows are padded by, 48 KB */
    MOST_SIDE = 64,        /* of a square tile, in entries */
    LEAST_SIDE = 4
};

struct entry_tiling {
    int64_t M, N;
    unsigned down, across; /* tiles in a column and in a row of a matrix */
    int rows, columns;     /* of a tile, in entries */
    int entry, pitch;      /* bytes of an entry, and from row to row in shared memory */
    divisor units;         /* of an entry */
    divisor in, out;       /* accesses of a row of the tile, and of the transposed tile */
};

/* What a row in shared memory is stored by: no less than a word, but for units that are. */
template <typename U, typename IN>
struct stored_by {
    typedef U type;
};
template <>
struct stored_by<unsigned short, uint4> {
    typedef unsigned type;
};

/* Loads parts of rows of x, whole accesses IN, into the tile. */
template <typename U, typename IN>
static __device__ __forceinline__ void load_tile(unsigned char *tile, const unsigned char *x,
                                                 int rows, int columns, const entry_tiling &t)
{
    typedef typename stored_by<U, IN>::type part;
    enum { IN_FLIGHT = 4, PARTS = sizeof(IN) / sizeof(part) };
    const int64_t stride = t.N * t.entry;
    const unsigned all = rows * t.in.by, end = columns * t.entry / sizeof(IN);

    for (unsigned first = threadIdx.x; first < all; first += IN_FLIGHT * THREADS) {
        IN v[IN_FLIGHT];
        int to[IN_FLIGHT];
        #pragma unroll IN_FLIGHT
        for (int k = 0; k < IN_FLIGHT; k++) {
            const unsigned access = first + k * THREADS, i = t.in.quotient(access);
            const unsigned c = access - i * t.in.by;
            to[k] = access < all && c < end ? (int)(i * t.pitch + c * sizeof(IN)) : -1;
            if (to[k] >= 0)
                v[k] = *(const IN *)(x + i * stride + c * sizeof(IN));
        }
        #pragma unroll IN_FLIGHT
        for (int k = 0; k < IN_FLIGHT; k++)
            #pragma unroll PARTS
            for (int i = 0; i < PARTS; i++)
                if (to[k] >= 0)
                    ((part *)(tile + to[k]))[i] = ((const part *)&v[k])[i];
    }
}

/* Stores parts of rows of out from the tile, whole accesses OUT, each gathered from units. */
template <typename U, typename OUT>
static __device__ __forceinline__ void store_tile(unsigned char *out, const unsigned char *tile,
                                                  int rows, int columns, const entry_tiling &t)
{
    enum { UNITS = sizeof(OUT) / sizeof(U) };
    const int64_t stride = t.M * t.entry;
    const unsigned all = columns * t.out.by, end = rows * t.entry / sizeof(OUT);

    #pragma unroll 2
    for (unsigned access = threadIdx.x; access < all; access += THREADS) {
        const unsigned j = t.out.quotient(access), c = access - j * t.out.by;
        const unsigned i = t.units.quotient(c * UNITS);
        unsigned unit = c * UNITS - i * t.units.by;
        const unsigned char *from = tile + i * t.pitch + j * t.entry + unit * sizeof(U);
        OUT v;
        if (c >= end)
            continue;
        #pragma unroll UNITS
        for (int k = 0; k < UNITS; k++) {
            ((U *)&v)[k] = *(const U *)from;
            from += sizeof(U);
            if (++unit == t.units.by)
                unit = 0, from += t.pitch - t.entry;
        }
        *(OUT *)(out + j * stride + c * sizeof(OUT)) = v;
    }
}

template <typename U, typename IN, typename OUT>
__global__ void __launch_bounds__(THREADS)
    entry_tiles(unsigned char *out, const unsigned char *x, entry_tiling t)
{
    extern __shared__ uint4 entries_smem[];
    unsigned char *tile = (unsigned char *)entries_smem;
    const unsigned row = blockIdx.x / t.across, matrix = row / t.down;
    const int64_t i = (int64_t)(row - matrix * t.down) * t.rows;
    const int64_t j = (int64_t)(blockIdx.x - row * t.across) * t.columns;
    const int rows = (int)min(t.M - i, (int64_t)t.rows);
    const int columns = (int)min(t.N - j, (int64_t)t.columns);

    x += ((matrix * t.M + i) * t.N + j) * t.entry;
    out += ((matrix * t.N + j) * t.M + i) * t.entry;
    load_tile<U, IN>(tile, x, rows, columns, t);
    __syncthreads();
    store_tile<U, OUT>(out, tile, rows, columns, t);
}

/* n, or of many the largest multiple of 8 that is no more: then 16 bytes, whatever an entry has. */
static int64_t of_eights(int64_t n, int64_t all)
{
    return n < all && n >= 8 ? n / 8 * 8 : min(n, all);
}

/* Tiles are square where matrices are not narrower: else as long as the area lets them. */
static entry_tiling entry_tiling_of(const matrices &s, int entry, int unit)
{
    int64_t side = MOST_SIDE, rows, columns;
    while (side * side * entry > TILE_BYTES)
        side /= 2;
    columns = min(side, s.N);
    rows = of_eights(side * side / columns, s.M);
    rows = s.N < side ? rows : min(rows, side);
    columns = s.M < side ? of_eights(side * side / rows, s.N) : columns;

    const int bank = max(4, unit); /* an odd number of these from row to row: few bank conflicts */
    return {s.M,
            s.N,
            (unsigned)ceil_div(s.M, rows),
            (unsigned)ceil_div(s.N, columns),
            (int)rows,
            (int)columns,
            entry,
            (int)(ceil_div(columns * entry, bank) | 1) * bank,
            divisor_of(entry / unit),
            divisor_of(1),
            divisor_of(1)};
}

template <typename U, typename IN, typename OUT>
static int launch_tiles(struct context *on, void *to, const void *from, int64_t B, entry_tiling t)
{
    t.in = divisor_of(ceil_div(t.columns * t.entry, sizeof(IN)));
    t.out = divisor_of(ceil_div(t.rows * t.entry, sizeof(OUT)));
    const auto kernel = entry_tiles<U, IN, OUT>;
    const unsigned blocks = (unsigned)(B * t.down * t.across);
    kernel<<<blocks, THREADS, t.rows * t.pitch, on->stream>>>((unsigned char *)to,
                                                              (const unsigned char *)from, t);
    return cudaGetLastError();
}

/* Can all parts of rows of N entries that a tile has be accessed by 16 bytes? */
static bool in_words(int64_t N, unsigned tiles, int columns, int entry)
{
    return N * entry % 16 == 0 && (tiles == 1 || columns * entry % 16 == 0);
}

template <typename U>
static int transpose_units(struct context *on, void *to, const void *from, const matrices &s,
                           int entry)
{
    const entry_tiling t = entry_tiling_of(s, entry, sizeof(U));
    const bool in = in_words(s.N, t.across, t.columns, entry);
    const bool out = in_words(s.M, t.down, t.rows, entry);
    if (in)
        return out ? launch_tiles<U, uint4, uint4>(on, to, from, s.B, t)
                   : launch_tiles<U, uint4, U>(on, to, from, s.B, t);
    return out ? launch_tiles<U, U, uint4>(on, to, from, s.B, t)
               : launch_tiles<U, U, U>(on, to, from, s.B, t);
}

template <typename T>
static int transpose_in_tiles(struct context *on, void *to, const void *from, const matrices &s)
{
    const int entry = (int)(s.D * sizeof(T));
    if (entry % 16 == 0)
        return transpose_units<uint4>(on, to, from, s, entry);
    if (entry % 8 == 0)
        return transpose_units<uint2>(on, to, from, s, entry);
    if (entry % 4 == 0)
        return transpose_units<unsigned>(on, to, from, s, entry);
    return transpose_units<unsigned short>(on, to, from, s, entry);
}

template <typename T>
static const char *tiles_decline(const struct call *f)
{
    const int64_t bytes = DIM(f, 'D') * sizeof(T);
    if (DIM(f, 'D') == 1)
        return ONE_ELEMENT;
    if (bytes > TILE_BYTES / (LEAST_SIDE * LEAST_SIDE))
        return "entries of more than 1536 bytes: no tile of 4 x 4 in shared memory";
    for (int p = FORWARD; p <= BACKWARD; p++) {
        const matrices s = matrices_of(f, (enum pass)p);
        const entry_tiling t = entry_tiling_of(s, (int)bytes, 2);
        if ((int64_t)t.down * t.across > MAX_BLOCKS / s.B)
            return "more tiles than a grid has blocks (2147483647)";
    }
    return NULL;
}

/* A tile gains nothing where entries are long, a matrix is a vector, or a block has all rows of one
 * and reads what is near. */
template <typename T>
static int tiles_yield(const struct call *f)
{
    const int64_t M = DIM(f, 'M'), N = DIM(f, 'N'), bytes = DIM(f, 'D') * sizeof(T);
    return !alone_declines(f) &&
           (bytes >= LONG_BYTES || M == 1 || N == 1 || M * N <= FEW_BYTES / bytes);
}

GPU_KERNEL_OF(entries_alone, entries,
              .idea = "width > 1: entry by entry, in units of 16 bytes where they fit",
              .pass = {forward<transpose_alone<T>>, backward<transpose_alone<T>>},
              .declines = alone_declines);
GPU_KERNEL_OF(entries_in_tiles, entry_tiles,
              .idea = "width > 1: tiles of short entries in shared memory, 16 bytes on both sides",
              .pass = {forward<transpose_in_tiles<T>>, backward<transpose_in_tiles<T>>},
              .declines = tiles_decline<T>, .yields = tiles_yield<T>);
