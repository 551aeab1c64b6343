/* Reads the lines of a program (text.h). */
#include "config.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/base/guess.h"
#include "common/base/number.h"
#include "common/program/instance.h"
#include "common/program/text.h"

/* What is read, and where. */
struct reading {
    struct program *p;
    FILE *errors;
    int number, faults;
    int repeat,
        depth; /* the line of the repeat that indented lines belong to, or -1; its indentation */
};

static void fault(struct reading *r, const char *format, ...)
{
    va_list list;

    fprintf(r->errors, "%s:%d: ", r->p->name, r->number);
    va_start(list, format);
    vfprintf(r->errors, format, list);
    va_end(list);
    fputc('\n', r->errors);
    r->faults++;
}

/* ---- words ---- */

static int is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.';
}

/* The next word of a line, of characters of names and others of `also`; its length, 0 at the end. */
static size_t next_word(const char **at, const char *also, char to[MAX_NAME])
{
    size_t n = 0, kept;

    *at += strspn(*at, " \t");
    while ((*at)[n] && (is_name_char((*at)[n]) || strchr(also, (*at)[n])))
        n++;
    kept = n < MAX_NAME ? n : MAX_NAME - 1;
    memcpy(to, *at, kept);
    to[kept] = 0;
    *at += n;
    return n;
}

static int is_name(const char *s)
{
    return isalpha((unsigned char)*s) || *s == '_';
}

/* Adds a word; 0 where there are too many. */
static int add_word(struct reading *r, struct word *list, int *n, const char *key,
                    const char *value)
{
    if (*n == MAX_WORDS) {
        fault(r, "more than %d words", MAX_WORDS);
        return 0;
    }
    snprintf(list[*n].key, MAX_NAME, "%s", key);
    snprintf(list[(*n)++].value, MAX_NAME, "%s", value);
    return 1;
}

static struct line *add_line(struct reading *r, enum line_kind kind)
{
    struct program *p = r->p;
    struct line *more = grow(p->line, p->n, sizeof *more);

    if (!more) {
        fault(r, "no memory for another line");
        return NULL;
    }
    p->line = more;
    more[p->n] = (struct line){.kind = kind, .number = r->number, .inside = r->repeat};
    return &more[p->n++];
}

const struct line *program_size(const struct program *p, const char *name)
{
    for (int i = 0; i < p->n; i++)
        if (p->line[i].kind == LINE_SIZE && strcmp(p->line[i].name, name) == 0)
            return &p->line[i];
    return NULL;
}

int line_has_key(const struct line *l, const char *key)
{
    for (int i = 0; i < l->n_words; i++)
        if (strcmp(l->word[i].key, key) == 0)
            return 1;
    return 0;
}

/* ---- the kinds of lines ---- */

/* `value` is the rest of the line. */
static void read_size(struct reading *r, const char *name, const char *value)
{
    struct line *l;
    int64_t n;

    value += strspn(value, " \t");
    if (number_whole(value, 1, 1 << 30, &n)) {
        fault(r, "%s = %s: %s", name, value, err_text());
        return;
    }
    if (r->repeat >= 0)
        fault(r, "%s is a size: it stands before what repeats", name);
    if (program_size(r->p, name))
        fault(r, "%s is set twice", name);
    if ((l = add_line(r, LINE_SIZE))) {
        snprintf(l->name, MAX_NAME, "%s", name);
        add_word(r, l->word, &l->n_words, "", value);
    }
}

/* NAME [steps, batch] */
static void read_input(struct reading *r, const char *name, const char *at)
{
    struct line *l = add_line(r, LINE_INPUT);
    char word[MAX_NAME];

    if (!l)
        return;
    snprintf(l->name, MAX_NAME, "%s", name);
    while (next_word(&at, "", word)) {
        add_word(r, l->word, &l->n_words, "", word);
        at += strspn(at, " \t");
        at += *at == ',';
    }
    if (*at != ']' || at[1 + strspn(at + 1, " \t")])
        fault(r, "%s: axes are [steps, batch]", name);
    else if (l->n_words > MAX_RANK)
        fault(r, "%s has more than %d axes", name, MAX_RANK);
    if (r->repeat >= 0)
        fault(r, "%s is an input: it stands before what repeats", name);
}

static const struct op *operation(struct reading *r, const char *name)
{
    const struct op *o = op_find(name);
    struct guess g = {.word = name};

    for (int i = 0; !o && i < N_OPS; i++)
        guess_among(&g, ops[i]->name);
    if (!o && g.best)
        fault(r, "there is no operation %s; %s is one", name, g.best);
    else if (!o)
        fault(r, "there is no operation %s", name);
    return o;
}

/* The inputs and keys behind an operation's name. */
static void read_given(struct reading *r, struct line *l, const char *at)
{
    char word[MAX_NAME], value[MAX_NAME];

    while (next_word(&at, "", word)) {
        value[0] = 0;
        if (*at == '=') {
            at++;
            if (!next_word(&at, "-+", value))
                fault(r, "%s has no value", word);
        }
        if (*value && line_has_key(l, word))
            fault(r, "%s is set twice", word);
        if (*value ? !add_word(r, l->word, &l->n_words, word, value)
                   : !add_word(r, l->word, &l->n_words, "", word))
            return;
    }
    if (*at)
        fault(r, "what is \"%s\"?", at);
}

/* The names before the sign. */
static void read_results(struct reading *r, struct line *l, const char *results)
{
    char word[MAX_NAME];

    while (next_word(&results, "", word)) {
        if (!is_name(word) || strchr(word, '.'))
            fault(r, "%s is no name of a result: letters, digits and _", word);
        add_word(r, l->result, &l->n_results, "", word);
        results += strspn(results, " \t,");
    }
    if (*results)
        fault(r, "what is \"%s\", before the =?", results);
}

/* results = operation ... ; `at` is behind the sign. */
static void read_call(struct reading *r, const char *results, const char *at)
{
    struct line *l, names = {.n_results = 0};
    char name[MAX_NAME];
    const struct op *o;

    read_results(r, &names, results);
    if (!next_word(&at, "", name)) {
        fault(r, "no operation behind =");
        return;
    }
    if (!(o = operation(r, name)) || !(l = add_line(r, LINE_CALL)))
        return;
    l->op = o;
    l->n_results = names.n_results;
    memcpy(l->result, names.result, sizeof l->result);
    read_given(r, l, at);
}

static void read_repeat(struct reading *r, const char *at, int depth)
{
    struct line *l;
    char word[MAX_NAME];
    int64_t n;

    if (r->repeat >= 0) {
        fault(r, "repeat within repeat");
        return;
    }
    if (!next_word(&at, "", word) || at[strspn(at, " \t")])
        fault(r, "repeat COUNT: a number or a size");
    else if (!program_size(r->p, word) && number_whole(word, 1, 1 << 20, &n))
        fault(r, "repeat %s: no size of that name, and no number from 1 on", word);
    if ((l = add_line(r, LINE_REPEAT))) {
        snprintf(l->name, MAX_NAME, "%s", word);
        r->repeat = (int)(l - r->p->line);
        r->depth = depth;
    }
}

static void read_outputs(struct reading *r, const char *at)
{
    struct line *l = add_line(r, LINE_OUTPUT);
    char word[MAX_NAME];

    while (l && next_word(&at, "", word)) {
        add_word(r, l->word, &l->n_words, "", word);
        at += strspn(at, " \t,");
    }
    if (l && (*at || !l->n_words))
        fault(r, "output NAME ...");
    if (r->repeat >= 0)
        fault(r, "output stands behind what repeats");
}

/* A longer one would be cut, and another's. */
static int has_long_name(struct reading *r, const char *at)
{
    for (size_t n; *at; at += n ? n : 1) {
        for (n = 0; is_name_char(at[n]);)
            n++;
        if (n >= MAX_NAME) {
            fault(r, "%.20s... is longer than %d characters", at, MAX_NAME - 1);
            return 1;
        }
    }
    return 0;
}

static void read_line(struct reading *r, char *text)
{
    const int depth = (int)strspn(text, " \t");
    const char *at = text + depth, *equals;
    char word[MAX_NAME];

    text[strcspn(text, ";")] = 0;
    for (size_t end = strlen(text); end && isspace((unsigned char)text[end - 1]); end--)
        text[end - 1] = 0;
    if (!*at || has_long_name(r, at))
        return;
    if (r->repeat >= 0 && depth <= r->depth)
        r->repeat = -1;
    const char *behind = at;
    if (!next_word(&behind, "", word) || !is_name(word)) {
        fault(r, "a line begins with a name: \"%s\"", at);
        return;
    }
    behind += strspn(behind, " \t");
    equals = strchr(at, '=');
    if (strcmp(word, "repeat") == 0 && *behind != '=') {
        read_repeat(r, behind, depth);
    } else if (strcmp(word, "output") == 0 && *behind != '=') {
        read_outputs(r, behind);
    } else if (*behind == '[') {
        read_input(r, word, behind + 1);
    } else if (!equals) {
        fault(r, "%s: neither NAME [axes] nor results = operation ...", word);
    } else {
        char results[MAX_NAME * 8];
        const char *rest = equals + 1 + strspn(equals + 1, " \t");
        const size_t length = (size_t)(equals - at);
        snprintf(results, sizeof results, "%.*s", (int)length, at);
        if (*behind == '=' && *rest && strchr("0123456789+-.", *rest))
            read_size(r, word, rest);
        else
            read_call(r, results, equals + 1);
    }
}

/* ---- the whole ---- */

/* The sizes as parameters, in the order of the text. */
static int sizes_of(struct reading *r)
{
    struct program *p = r->p;
    int n = 0;

    for (int i = 0; i < p->n; i++)
        n += p->line[i].kind == LINE_SIZE;
    if (program_size(p, RECOMPUTE))
        fault(r, "%s is a word of every program", RECOMPUTE);
    if (n >= MAX_PARAMS || n > MAX_AXES / 2) {
        fault(r, "more than %d sizes", MAX_AXES / 2);
        return -1;
    }
    p->param = calloc(n + 1, sizeof *p->param);
    for (int i = 0; p->param && i < p->n; i++) {
        const struct line *l = &p->line[i];
        int64_t initial;
        if (l->kind != LINE_SIZE || number_whole(l->word[0].value, 1, 1 << 30, &initial))
            continue;
        p->param[p->n_params] = (struct param)SIZE_PARAM(l->name, (char)('A' + p->n_params),
                                                         initial, "a size of the program");
        p->n_params++;
    }
    if (!p->param)
        return -1;
    p->param[p->n_params] = (struct param)WHOLE_PARAM(
        RECOMPUTE, (char)('A' + p->n_params), 0, 0, 1 << 20,
        "blocks whose tensors are dropped, and made again together in backward; 0: none");
    p->param[p->n_params++].aside = 1;
    return 0;
}

/* A program has a call, and so has each repeat. */
static void look_at_all(struct reading *r)
{
    const struct program *p = r->p;
    int calls = 0;

    for (int i = 0; i < p->n; i++) {
        int inside = 0;
        for (int l = i + 1; l < p->n; l++)
            inside |= p->line[l].inside == i;
        r->number = p->line[i].number;
        if (p->line[i].kind == LINE_REPEAT && !inside)
            fault(r, "nothing is repeated: lines of a block stand further in than its repeat");
        calls += p->line[i].kind == LINE_CALL;
    }
    r->number = 1;
    if (!calls && !r->faults)
        fault(r, "no line is results = operation ...");
}

struct program *program_read(const char *name, const char *text, FILE *errors)
{
    struct program *p = calloc(1, sizeof *p);
    struct reading r = {p, errors, 0, 0, -1, 0};
    char *copy = strdup(text), *at = copy;

    if (!p || !copy || !(p->text = strdup(text))) {
        fprintf(errors, "%s: no memory for the program\n", name);
        free(p);
        free(copy);
        return NULL;
    }
    snprintf(p->name, sizeof p->name, "%s", name);
    pthread_mutex_init(&p->lock, NULL);
    for (char *line; (line = strsep(&at, "\n"));) {
        r.number++;
        read_line(&r, line);
    }
    free(copy);
    if (!r.faults)
        look_at_all(&r);
    if (!r.faults)
        sizes_of(&r);
    if (!r.faults)
        instance_first(p, errors, &r.faults);
    if (!r.faults)
        return p;
    program_free(p);
    return NULL;
}
