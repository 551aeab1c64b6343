/* Reads ranges and writes the numbers that they stand for (ranges.h). */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/number.h"
#include "common/call/contract.h"
#include "common/call/machine.h"
#include "common/plan/plan.h"
#include "common/plan/ranges.h"

static const char blanks[] = " \t";

/* All that a key takes: whole numbers of 64 bits with a sign, or, as seeds are, without one. */
__extension__ typedef __int128 whole;

/* A .. B (EVERY), A:B random N (DRAWN) or A:B xN (TIMES); N is `by`. */
struct range {
    whole first, last;
    int64_t by;
    enum { EVERY, DRAWN, TIMES } rule;
};

/* ---- from text ---- */

/* Behind the whole number that the text begins with; NULL if it begins with none. */
static char *behind_number(char *c)
{
    c += *c == '+' || *c == '-';
    size_t n = strspn(c, "0123456789");
    return n ? c + n : NULL;
}

static int is_range(char *item)
{
    char *c = behind_number(item);
    if (!c)
        return 0;
    c += strspn(c, blanks);
    return *c == ':' || strncmp(c, "..", 2) == 0;
}

static int malformed(void)
{
    return err_set("a range is A .. B, A:B random N or A:B xN, in whole numbers");
}

static int read_end(const char *text, whole *x)
{
    int64_t below = 0;
    uint64_t number = 0;
    int e = *text == '-' ? number_whole(text, -INT64_MAX, 0, &below)
                         : number_seed(text, UINT64_MAX, &number);

    *x = below + (whole)number;
    return e ? err_set("%s: must be %" PRId64 " to %" PRIu64, text, -INT64_MAX, UINT64_MAX) : 0;
}

static const char *whole_text(whole x, char text[NUMBER_TEXT])
{
    if (x < 0)
        snprintf(text, NUMBER_TEXT, "%" PRId64, (int64_t)x);
    else
        snprintf(text, NUMBER_TEXT, "%" PRIu64, (uint64_t)x);
    return text;
}

/* What stands behind A:B. */
static int read_rule(const char *rule, struct range *r)
{
    size_t n = strcspn(rule, blanks);

    if (n == strlen("random") && strncmp(rule, "random", n) == 0) {
        r->rule = DRAWN;
        rule += n + strspn(rule + n, blanks);
        return number_whole(rule, 1, MAX_TRIALS, &r->by)
                   ? err_set("N of random N must be a whole number, 1 to %d", MAX_TRIALS)
                   : 0;
    }
    if (*rule == 'x') {
        r->rule = TIMES;
        return number_whole(rule + 1, 2, INT64_MAX, &r->by)
                   ? err_set("N of xN must be a whole number, 2 or more")
                   : 0;
    }
    char first[NUMBER_TEXT], last[NUMBER_TEXT];
    whole_text(r->first, first);
    whole_text(r->last, last);
    return err_set("random N or xN must follow %s:%s, or write %s .. %s for every number", first,
                   last, first, last);
}

/* An item that is_range(); the text is cut into its parts. */
static int read_range(char *item, struct range *r)
{
    char *end = behind_number(item), *sign = end + strspn(end, blanks);
    int every = *sign == '.';
    char *second = sign + (every ? 2 : 1);

    *end = 0;
    second += strspn(second, blanks);
    end = behind_number(second);
    if (!end || (*end && !strchr(blanks, *end)))
        return malformed();
    char *rule = end + strspn(end, blanks);
    *end = 0;
    *r = (struct range){.rule = EVERY};
    if (read_end(item, &r->first) || read_end(second, &r->last))
        return -1;
    if (every)
        return rule > end ? malformed() : 0;
    return read_rule(rule, r);
}

/* ---- to numbers ---- */

/* How many whole numbers there are from first to last. */
static whole numbers(const struct range *r)
{
    return r->last - r->first + 1;
}

static int check(const struct range *r)
{
    char first[NUMBER_TEXT], last[NUMBER_TEXT], ends[2 * NUMBER_TEXT];

    snprintf(ends, sizeof ends, "%s:%s", whole_text(r->first, first), whole_text(r->last, last));
    if (r->first > r->last)
        return r->rule == EVERY ? err_set("the first is larger")
                                : err_set("%s: the first is larger", ends);
    if (r->rule != EVERY && r->first < 1)
        return err_set("%s: random and xN need a first number of 1 or more", ends);
    if (r->rule == DRAWN && numbers(r) < r->by)
        return err_set("%s has %d number%s, fewer than %d", ends, (int)numbers(r),
                       numbers(r) == 1 ? "" : "s", (int)r->by);
    return 0;
}

/* Number i of the sequence of those that are drawn.  Written by the distance from the first
 * number, it is exact also where the range is narrow and its numbers are large. */
static whole draw(const struct range *r, uint64_t key, uint64_t i)
{
    const whole span = r->last - r->first;
    double a = (double)r->first, n = (double)span + 1;
    double distance = a * expm1(draw_uniform(key, i) * log1p(n / a));

    if (distance >= n || (whole)distance > span)
        return r->last;
    return r->first + (whole)distance;
}

/* Put x among n ascending numbers; returns how many there are then. */
static int put_among(whole *number, int n, whole x)
{
    int low = 0, high = n;

    while (low < high) {
        int middle = (low + high) / 2;
        if (number[middle] < x)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < n && number[low] == x)
        return n;
    memmove(number + low + 1, number + low, (n - low) * sizeof *number);
    number[low] = x;
    return n + 1;
}

/* The values of a range, ascending, into number[], which is long enough; returns how many. */
static int fill(const struct range *r, uint64_t key, whole *number)
{
    int n = 0;

    if (r->rule == DRAWN)
        for (uint64_t i = 0; n < r->by; i++)
            n = put_among(number, n, draw(r, key, i));
    else if (r->rule == EVERY)
        for (; n < numbers(r); n++)
            number[n] = r->first + n;
    else
        for (whole x = r->first; x <= r->last; x *= r->by)
            number[n++] = x;
    return n;
}

/* A list whose ranges are being written as numbers. */
struct expansion {
    const char *key;
    uint64_t draws; /* the key of what is drawn */
    int made;       /* values, of ranges */
    FILE *to;
};

/* An item that is_range(); its text is cut up. */
static int put_range(char *item, struct expansion *x)
{
    whole number[MAX_TRIALS];
    struct range r;
    char text[NUMBER_TEXT];

    if (read_range(item, &r) || check(&r))
        return -1;
    whole n = numbers(&r);
    if (r.rule != EVERY || n <= MAX_TRIALS)
        n = fill(&r, x->draws, number);
    if (n > MAX_TRIALS - x->made)
        return err_set("it makes %s%s values; the ranges of a list make at most %d",
                       n > UINT64_MAX ? "more than " : "",
                       whole_text(n > UINT64_MAX ? UINT64_MAX : n, text), MAX_TRIALS);
    x->made += (int)n;
    for (int i = 0; i < n; i++)
        fprintf(x->to, "%s%s", i ? ", " : "", whole_text(number[i], text));
    return 0;
}

/* The n characters before a comma or the end. */
static int put_item(const char *text, int n, struct expansion *x)
{
    int begin = (int)strspn(text, blanks), end = n, e = 0;

    while (end > begin && strchr(blanks, text[end - 1]))
        end--;
    char *item = strndup(text + begin, end > begin ? end - begin : 0);
    if (!item)
        return err_set("no memory for the values of %s", x->key);
    if (!is_range(item))
        fprintf(x->to, "%.*s", n, text);
    else if (put_range(item, x))
        e = err_at("%s = %.*s", x->key, end - begin, text + begin);
    free(item);
    return e;
}

char *ranges_expand(const char *key, const char *values, uint64_t seed)
{
    char *text = NULL;
    size_t size;
    struct expansion x = {key, draw_key(seed, key), 0, open_memstream(&text, &size)};
    int e = 0;

    if (!x.to)
        return err_null("no memory for the values of %s", key);
    for (const char *v = values; !e; v++) {
        size_t n = strcspn(v, ",");
        e = put_item(v, (int)n, &x);
        v += n;
        if (!*v)
            break;
        fputc(',', x.to);
    }
    if (fclose(x.to) && !e)
        e = err_set("no memory for the values of %s", key);
    if (!e)
        return text;
    free(text);
    return NULL;
}
