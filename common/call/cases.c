/* Expands a text of settings into cases: the product of their lists (cases.h). */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/base/number.h"
#include "common/base/quote.h"
#include "common/call/cases.h"

/* One more value, of n characters. */
static int add_value(struct list *l, const char *value, size_t n)
{
    char **more = grow(l->value, l->n_values, sizeof *more);

    if (!more)
        return err_set("no memory for the values of %s", l->key);
    l->value = more;
    more[l->n_values] = strndup(value, n);
    if (!more[l->n_values])
        return err_set("no memory for the values of %s", l->key);
    l->n_values++;
    return 0;
}

/* A value as it is compared: numbers are written in one way. */
struct plain {
    const char *value;
    char number[NUMBER_TEXT];
    int at;
};

static const char *text_of(const struct plain *p)
{
    return *p->number ? p->number : p->value;
}

static int by_text(const void *a, const void *b)
{
    const struct plain *x = a, *y = b;
    int order = strcmp(text_of(x), text_of(y));
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

/* The first value that stands there for a second time is an error. */
static int refuse_twice(const struct list *l)
{
    struct plain *sorted = calloc(l->n_values, sizeof *sorted), *second = NULL;

    if (!sorted)
        return err_set("no memory for the values of %s", l->key);
    for (int i = 0; i < l->n_values; i++) {
        sorted[i] = (struct plain){.value = l->value[i], .at = i};
        number_plain(l->value[i], sorted[i].number);
    }
    qsort(sorted, l->n_values, sizeof *sorted, by_text);
    for (int i = 1; i < l->n_values; i++)
        if (strcmp(text_of(&sorted[i - 1]), text_of(&sorted[i])) == 0 &&
            (!second || sorted[i].at < second->at))
            second = &sorted[i];
    int e = second ? err_set("%s: %s is listed twice in the list, as values %d and %d", l->key,
                             text_of(second), second[-1].at + 1, second->at + 1)
                   : 0;
    free(sorted);
    return e;
}

int lists_add(struct lists *l, const char *key, const char *values, int line)
{
    struct list *at = &l->list[l->n];

    if (l->n == (int)COUNT(l->list))
        return err_set("more than %zu keys", COUNT(l->list));
    if (strlen(key) >= sizeof at->key)
        return err_set("key too long: %s", key);
    memset(at, 0, sizeof *at);
    strcpy(at->key, key);
    at->line = line;
    l->n++;
    for (const char *v = values;; v++) {
        v += strspn(v, " \t");
        size_t n = strcspn(v, ","), length = n;
        while (length && strchr(" \t", v[length - 1]))
            length--;
        if (!length)
            return err_set("%s: a value is missing", key);
        if (add_value(at, v, length))
            return -1;
        v += n;
        if (!*v)
            return refuse_twice(at);
    }
}

int lists_next(struct lists *l)
{
    for (int i = l->n - 1; i >= 0; i--) {
        if (++l->list[i].at < l->list[i].n_values)
            return 1;
        l->list[i].at = 0;
    }
    return 0;
}

void lists_free(struct lists *l)
{
    for (int i = 0; i < l->n; i++) {
        for (int v = 0; v < l->list[i].n_values; v++)
            free(l->list[i].value[v]);
        free(l->list[i].value);
    }
    l->n = 0;
}

/* The words of one section, up to ';' or the end; returns where that is. */
static const char *read_section(const char *text, struct lists *l)
{
    while (*text && *text != ';') {
        char word[256], *equals;
        size_t n = strcspn(text, " ;");
        if (!n) {
            text++;
            continue;
        }
        if (n >= sizeof word || !(equals = memchr(text, '=', n)))
            return err_null("expected key=value at: %.*s", quote_fit(text, 60), text);
        memcpy(word, text, n);
        word[n] = 0;
        word[equals - text] = 0;
        if (lists_add(l, word, word + (equals - text) + 1, 0))
            return NULL;
        text += n;
    }
    return text;
}

static int set_all(const struct op *o, const struct lists *l, struct call *f)
{
    op_defaults(o, f);
    for (int i = 0; i < l->n; i++)
        if (op_set(f, l->list[i].key, l->list[i].value[l->list[i].at]))
            return -1;
    return op_complete(f);
}

int cases_each(const struct op *o, const char *text, int (*each)(const struct call *f, void *data),
               void *data)
{
    struct lists *l = calloc(1, sizeof *l);
    int e = l ? 0 : err_set("no memory");

    while (!e && *(text += strspn(text, "; "))) {
        text = read_section(text, l);
        e = text ? 0 : -1;
        while (!e) {
            struct call f;
            e = set_all(o, l, &f);
            if (!e)
                e = each(&f, data);
            if (!lists_next(l))
                break;
        }
        lists_free(l);
    }
    free(l);
    return e;
}

static int keep(const struct call *f, void *data)
{
    *(struct call *)data = *f;
    return 0;
}

int cases_one(const struct op *o, const char *text, struct call *f)
{
    op_defaults(o, f);
    return *text ? cases_each(o, text, keep, f) : op_complete(f);
}
