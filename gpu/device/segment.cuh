/* segment.cuh - part of a row that begins and ends anywhere, in the registers of neighbouring lanes.
 *
 * A segment has K x `lanes` vectors of V = WIDTH<T> columns each; `lanes` is a power of two up to a
 * warp, and lane l has the vectors l + k lanes.  So an element's lane follows from its column, and a
 * row gives the same bits at any address.
 *
 * In memory the segment begins `shift` elements after a multiple of 16 bytes, and `shift` differs
 * from row to row.  A word is 16 aligned bytes: word w has the columns w V - shift to w V - shift +
 * V - 1.  Lanes read and write whole words, word l + k lanes for vector l + k lanes, and shift them
 * in registers: vector v consists of the end of word v and the beginning of word v + 1, which the
 * next lane has read.  The last word of a row is read in parts of 8, 4 and 2 bytes, and so are the
 * first and last words of a segment written.
 *
 * A load may read up to 15 bytes before the segment, which are of the same tensor, because tensors
 * are aligned to 16 bytes; it reads none after the end of the row.  A store writes columns of the
 * segment only.  Called by whole warps. */
#ifndef SEGMENT_CUH
#define SEGMENT_CUH

#include "gpu/device/async.cuh"
#include "gpu/device/bits.cuh"
#include "gpu/device/vector.cuh"

/* The elements between the last multiple of 16 bytes and p. */
template <typename T>
static __device__ __forceinline__ int misalignment(const T *p)
{
    return (int)((uintptr_t)p % 16 / sizeof(T));
}

/* The number of 32-bit words in `elements` elements, and the bits that are left. */
template <typename T>
static __device__ __forceinline__ int words_of(int elements)
{
    return elements / storage<T>::PER_WORD;
}
template <typename T>
static __device__ __forceinline__ int bits_left(int elements)
{
    return elements % storage<T>::PER_WORD * (32 / storage<T>::PER_WORD);
}

/* The vector that begins with element `shift` of low:high, 0 <= shift < WIDTH<T>. */
template <typename T>
static __device__ __forceinline__ vec<T> shifted(const vec<T> &low, const vec<T> &high, int shift)
{
    const int words = words_of<T>(shift);
    unsigned x[8];
    vec<T> to;

    #pragma unroll 4
    for (int i = 0; i < 4; i++) {
        x[i] = low.word[i];
        x[i + 4] = high.word[i];
    }
    #pragma unroll 6
    for (int i = 0; i < 6; i++)
        x[i] = words & 2 ? x[i + 2] : x[i];
    #pragma unroll 5
    for (int i = 0; i < 5; i++)
        x[i] = words & 1 ? x[i + 1] : x[i];
    #pragma unroll 4
    for (int i = 0; i < 4; i++)
        to.word[i] =
            storage<T>::PER_WORD == 1 ? x[i] : funnel_right(x[i], x[i + 1], bits_left<T>(shift));
    return to;
}

/* ---- parts of a word ---- */

/* The first n elements of a word, 0 < n < WIDTH<T>, and zeros.  It reads nothing else. */
template <typename T>
static __device__ __forceinline__ vec<T> load_beginning(const T *from, int n)
{
    const unsigned *words = (const unsigned *)from;
    const int whole = words_of<T>(n);
    uint2 two = {0, 0};
    unsigned one = 0, half = 0;
    vec<T> v;

    if (whole & 2)
        two = *(const uint2 *)words;
    if (whole & 1)
        one = words[whole & 2];
    if (bits_left<T>(n))
        half = ((const unsigned short *)from)[n - 1];
    const unsigned last = whole & 1 ? one : half, after = whole & 1 ? half : 0;
    v.word[0] = whole & 2 ? two.x : last;
    v.word[1] = whole & 2 ? two.y : after;
    v.word[2] = whole & 2 ? last : 0;
    v.word[3] = whole & 2 ? after : 0;
    return v;
}

/* Stores the first n elements of a word, 0 < n < WIDTH<T>. */
template <typename T>
static __device__ __forceinline__ void store_beginning(T *to, const vec<T> &v, int n)
{
    unsigned *words = (unsigned *)to;
    const int whole = words_of<T>(n);
    const unsigned one = whole & 2 ? v.word[2] : v.word[0];
    const unsigned after = whole & 2 ? v.word[3] : v.word[1];

    if (whole & 2)
        *(uint2 *)words = make_uint2(v.word[0], v.word[1]);
    if (whole & 1)
        words[whole & 2] = one;
    if (bits_left<T>(n))
        ((unsigned short *)to)[n - 1] = (unsigned short)(whole & 1 ? after : one);
}

/* Stores the elements of a word from `first` on, 0 < first < WIDTH<T>. */
template <typename T>
static __device__ __forceinline__ void store_end(T *to, const vec<T> &v, int first)
{
    unsigned *words = (unsigned *)to;
    const int half = words_of<T>(first); /* the word of which it stores the upper half, if any */
    const int whole = half + (bits_left<T>(first) != 0);
    const unsigned lower = half & 2 ? v.word[2] : v.word[0];
    const unsigned upper = half & 2 ? v.word[3] : v.word[1];

    if (bits_left<T>(first))
        ((unsigned short *)to)[first] = (unsigned short)((half & 1 ? upper : lower) >> 16);
    if (whole & 1)
        words[whole] = whole & 2 ? v.word[3] : v.word[1];
    if (whole <= 2)
        *(uint2 *)(words + 2) = make_uint2(v.word[2], v.word[3]);
}

/* Stores the elements [first, end) of a word. */
template <typename T>
static __device__ __forceinline__ void store_within(T *to, const vec<T> &v, int first, int end)
{
    #pragma unroll 8
    for (int j = 0; j < WIDTH<T>; j++)
        if (j < first || j >= end)
            continue;
        else if (storage<T>::PER_WORD == 2)
            ((unsigned short *)to)[j] = (unsigned short)(v.word[j / 2] >> j % 2 * 16);
        else
            ((unsigned *)to)[j] = v.word[j % 4];
}

/* ---- segments ---- */

/* `fill`, which T must represent exactly, for the elements from `n` on. */
template <typename T>
static __device__ __forceinline__ void fill_from(vec<T> &v, int n, float fill)
{
    const unsigned all = storage<T>::full(fill);

    #pragma unroll 4
    for (int i = 0; i < 4; i++)
        if (storage<T>::PER_WORD == 1)
            v.word[i] = i < n ? v.word[i] : all;
        else if (2 * i + 1 >= n)
            v.word[i] = ((2 * i < n ? v.word[i] : all) & 0xffff) | (all & 0xffff0000);
}

/* Loads the words of a segment, `end` elements from the first word on; returns, in lane 0, the word
 * after the segment's last. */
template <typename T, int K>
static __device__ __forceinline__ vec<T> load_words(vec<T> (&v)[K], const T *words, int end,
                                                    int lane, int lanes)
{
    enum { V = WIDTH<T> };
    const int last = end / V; /* the word of which the row has the beginning only */
    vec<T> after = {};

    const auto word = [&](int w) {
        return load_vec((const vec<T> *)words + w, (w + 1) * V <= end);
    };
    #pragma unroll K
    for (int k = 0; k < K; k++)
        v[k] = word(lane + k * lanes);
    if (lane == 0)
        after = word(K * lanes);
    if (end % V && (last & (lanes - 1)) == lane && last <= K * lanes) {
        const vec<T> rest = load_beginning(words + (int64_t)last * V, end % V);
        #pragma unroll K
        for (int k = 0; k < K; k++)
            if (last == lane + k * lanes)
                v[k] = rest;
        if (last == K * lanes)
            after = rest;
    }
    return after;
}

/* The vectors of a segment from its words; `after`, in lane 0, is the word after its last. */
template <typename T, int K>
static __device__ __forceinline__ void join_words(vec<T> (&v)[K], const vec<T> &after, int shift,
                                                  int lane, int lanes)
{
    #pragma unroll K
    for (int k = 0; k < K; k++) {
        vec<T> next;
        #pragma unroll 4
        for (int i = 0; i < 4; i++) { /* lane 0 hands the last lane its next one */
            const unsigned later = k + 1 < K ? v[(k + 1) % K].word[i] : after.word[i];
            const unsigned handed = lane == 0 ? later : v[k].word[i];
            next.word[i] = __shfl_sync(~0u, handed, (lane + 1) & (lanes - 1), lanes);
        }
        v[k] = shifted(v[k], next, shift);
    }
}

/* Loads the segment whose first column is at `from`; its row has n more columns (n <= 0: none).
 * Columns beyond the end are `fill`.  All loads are in flight at once. */
template <typename T, int K>
static __device__ __forceinline__ void load_segment(vec<T> (&v)[K], const T *from, int n, int lane,
                                                    int lanes, float fill)
{
    const int shift = misalignment(from);
    const vec<T> after = load_words(v, from - shift, n > 0 ? n + shift : 0, lane, lanes);

    join_words(v, after, shift, lane, lanes);
    #pragma unroll K
    for (int k = 0; k < K; k++) {
        const int left = n - (lane + k * lanes) * (int)WIDTH<T>;
        if (fill != 0 && left < WIDTH<T>)
            fill_from(v[k], left, fill);
    }
}

/* Copies the words of a segment to shared memory, all but a row's last with cp.async: word k of the lane to to[k stride], and
 * in lane 0 the word after the segment's last to `after`, unless that is NULL. */
template <int K, typename T>
static __device__ __forceinline__ void copy_segment(vec<T> *to, int stride, vec<T> *after,
                                                    const T *from, int n, int lane, int lanes)
{
    enum { V = WIDTH<T> };
    const int shift = misalignment(from), end = n > 0 ? n + shift : 0;
    const T *words = from - shift;

    const auto copy = [&](vec<T> *slot, int w) {
        const T *at = words + (int64_t)w * V;
        const int left = end - w * V;
        if (left > 0 && left < V) /* the row's last word */
            *slot = load_beginning(at, left);
        else
            cp_async16(slot, left > 0 ? at : words, left > 0 ? 16 : 0);
    };
    #pragma unroll K
    for (int k = 0; k < K; k++)
        copy(to + k * stride, lane + k * lanes);
    if (after && lane == 0)
        copy(after, K * lanes);
}

/* Stores words of a segment, `end` elements from the first word on; of the first word without `shift`
 * elements, of the word `behind` the segment these only.  `behind` is in the last lane. */
template <typename T, int K>
static __device__ __forceinline__ void store_words(T *words, const vec<T> (&v)[K],
                                                   const vec<T> &behind, int shift, int end,
                                                   int lane, int lanes)
{
    enum { V = WIDTH<T> };
    const int last = end / V, all = K * lanes;
    const bool head = lane == 0 && shift > 0;
    vec<T> part = behind;
    int at = all, n = lane == lanes - 1 ? min(shift, end - all * V) : 0;

    #pragma unroll K
    for (int k = 0; k < K; k++) {
        const int w = lane + k * lanes;
        if (w < last && !(k == 0 && head))
            store_global(words + (int64_t)w * V, v[k]);
        if (w == last && !(k == 0 && head))
            part = v[k], at = w, n = end % V;
    }
    if (n > 0)
        store_beginning(words + (int64_t)at * V, part, n);
    if (head && last > 0)
        store_end(words, v[0], shift);
    else if (head && end > shift)
        store_within(words, v[0], shift, end);
}

/* Stores the segment whose first column is at `to`; its row has n more columns (n <= 0: none).  The
 * vectors are lost. */
template <typename T, int K>
static __device__ __forceinline__ void store_segment(T *to, vec<T> (&v)[K], int n, int lane,
                                                     int lanes)
{
    const int shift = misalignment(to), previous_lane = (lane - 1) & (lanes - 1);
    const int back = shift ? WIDTH<T> - shift : 0;
    const vec<T> behind = shifted(v[K - 1], vec<T>{}, back);

    #pragma unroll K
    for (int k = K - 1; k >= 0; k--) {
        vec<T> previous;
        #pragma unroll 4
        for (int i = 0; i < 4; i++) { /* the last lane hands lane 0 its previous one */
            const unsigned earlier = k ? v[(k + K - 1) % K].word[i] : 0, mine = v[k].word[i];
            const unsigned handed = lane == lanes - 1 ? earlier : mine;
            const unsigned got = __shfl_sync(~0u, handed, previous_lane, lanes);
            previous.word[i] = shift ? got : mine; /* then the word is the vector */
        }
        v[k] = shifted(previous, v[k], back);
    }
    store_words(to - shift, v, behind, shift, n > 0 ? n + shift : 0, lane, lanes);
}

/* ---- rows of a group of threads ---- */

/* A vector whose elements are all `fill`, which T must represent exactly. */
template <typename T>
static __device__ __forceinline__ vec<T> vector_full(float fill)
{
    const unsigned all = storage<T>::full(fill);
    return {{all, all, all, all}};
}

/* The K vectors that thread `lane` of `lanes` has of a row: the index of the first, and the stride.
 * WHOLE_ROWS, of a multiple of 16 bytes: a stride of all lanes; otherwise each warp has a segment. */
template <bool WHOLE_ROWS, int K>
static __device__ __forceinline__ int first_vector(int lane)
{
    return WHOLE_ROWS ? lane : lane / 32 * 32 * K + lane % 32;
}
template <bool WHOLE_ROWS>
static __device__ __forceinline__ int vector_stride(int lanes)
{
    return WHOLE_ROWS ? lanes : min(lanes, 32);
}

/* The k-th of them, of a row's vectors from `first` on. */
template <bool WHOLE_ROWS, int K>
static __device__ __forceinline__ int vector_of(int first, int k, int lane, int lanes)
{
    return first + first_vector<WHOLE_ROWS, K>(lane) + k * vector_stride<WHOLE_ROWS>(lanes);
}

/* Loads them; all loads are in flight at once.  Elements beyond the n of the row are `fill`. */
template <bool WHOLE_ROWS, typename T, int K>
static __device__ __forceinline__ void load_vectors(vec<T> (&v)[K], const T *row, int n, int first,
                                                    int lane, int lanes, float fill)
{
    if constexpr (!WHOLE_ROWS) {
        const int at = (first + first_vector<false, K>(lane) - lane % 32) * WIDTH<T>;
        load_segment(v, row + at, n - at, lane % 32, min(lanes, 32), fill);
    } else {
        #pragma unroll K
        for (int k = 0; k < K; k++) {
            const int vector = vector_of<true, K>(first, k, lane, lanes);
            v[k] = vector * WIDTH<T> < n ? ((const vec<T> *)row)[vector] : vector_full<T>(fill);
        }
    }
}

/* Stores them; element i of the k-th vector is x(k, i). */
template <bool WHOLE_ROWS, int K, typename T, typename F>
static __device__ __forceinline__ void store_vectors(T *row, int n, int first, int lane, int lanes,
                                                     const F &x)
{
    const auto made = [&](int k) { return make_vec<T>([&](int i) { return x(k, i); }); };
    if constexpr (!WHOLE_ROWS) {
        const int at = (first + first_vector<false, K>(lane) - lane % 32) * WIDTH<T>;
        vec<T> v[K];
        #pragma unroll K
        for (int k = 0; k < K; k++)
            v[k] = made(k);
        store_segment(row + at, v, n - at, lane % 32, min(lanes, 32));
    } else {
        #pragma unroll K
        for (int k = 0; k < K; k++) {
            const int vector = vector_of<true, K>(first, k, lane, lanes);
            if (vector * WIDTH<T> < n) {
                const vec<T> one =
                    made(k); /* not built in place: the emulator would not see that */
                ((vec<T> *)row)[vector] = one;
            }
        }
    }
}

#endif
