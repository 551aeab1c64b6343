/* What a person reads fits the width of where it is printed: lines of text, and tables. */
#include "config.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/quote.h"
#include "common/page/html.h"
#include "common/report/table.h"
#include "common/report/time_text.h"
#include "tests/chance.h"
#include "tests/tap.h"

/* What was printed, and the widest of its lines. */
struct printed {
    char *text;
    size_t size;
    struct screen screen;
};

static void print_into(struct printed *p, int width)
{
    p->screen = (struct screen){open_memstream(&p->text, &p->size), width, 0, 0};
}

static int widest(struct printed *p)
{
    int width = 0;
    fclose(p->screen.to);
    for (char *line = p->text, *end; *line; line = end) {
        char one[2048];
        end = strchr(line, '\n') + 1;
        snprintf(one, sizeof one, "%.*s", (int)(end - line - 1), line);
        if (text_columns(one) > width)
            width = text_columns(one);
    }
    return width;
}

static void said(int width, const char *text, const char *expected)
{
    struct printed p;

    print_into(&p, width);
    say_printable(&p.screen, 2, text);
    const int wide = widest(&p);
    if (!ok(wide <= width && strcmp(p.text, expected) == 0, "said in %d columns: %s", width, text))
        printf("# %d columns:\n# %s", wide, p.text);
    free(p.text);
}

static void lines(void)
{
    said(40, "short", "  short\n");
    said(40, "", "  \n");
    said(40, "one two three four five six seven eight",
         "  one two three four five six seven\n"
         "    eight\n");
    said(40, "skipped     gpu32: built without CUDA; again",
         "  skipped     gpu32: built without CUDA;\n"
         "              again\n");
    said(40, "  12  rows=64 columns=65 scale=1 form=half dtype=fp32",
         "    12  rows=64 columns=65 scale=1\n"
         "        form=half dtype=fp32\n");
    said(40, "exactly thirty-eight columns of letters",
         "  exactly thirty-eight columns of\n"
         "    letters\n");
    said(60, "\xc3\xa4\xc3\xb6\xc3\xbc \033[31mFAILED\033[0m 1 of 2",
         "  \xc3\xa4\xc3\xb6\xc3\xbc \033[31mFAILED\033[0m 1 of 2\n");

    struct printed p;
    print_into(&p, 40);
    say(&p.screen, 2, "a %s b", "word_that_is_wider_than_the_screen_and_that_nothing_can_break");
    ok(widest(&p) > 40 && strstr(p.text, "\n    word_that_is_wider_than_the_screen_and"),
       "a word wider than the screen is whole, on a line of its own");
    free(p.text);
}

static void cut(const char *text, int columns, const char *expected)
{
    char have[100];
    text_cut(text, columns, have, sizeof have);
    ok(strcmp(have, expected) == 0 && text_columns(have) <= columns, "%s cut to %d columns: %s",
       text, columns, have);
}

static void cuts(void)
{
    cut("lowrank", 7, "lowrank");
    cut("block_diagonal", 7, "blo\xe2\x80\xa6nal");
    cut("block_diagonal", 8, "bloc\xe2\x80\xa6nal");
    cut("\xc3\xa4\xc3\xb6\xc3\xbc\xc3\xa4\xc3\xb6", 3, "\xc3\xa4\xe2\x80\xa6\xc3\xb6");
    cut("\\x1b[31mname", 9, "\\x1b\xe2\x80\xa6name");
    cut("\\x1b[31mname", 7,
        "\xe2\x80\xa6"
        "ame");
    cut("name\\x1b\\x1b", 9, "name\xe2\x80\xa6\\x1b");
    cut("name\\x1b\\x1b", 8, "name\xe2\x80\xa6");
    cut("name\\x1g\\x1b", 8, "name\xe2\x80\xa6");
}

/* Names of printable text: characters of one to four bytes, and bytes that were made \xHH. */
static const char *const units[] = {
    "a", "\\", "x", "\\x1b", "\\xff", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
enum { MOST_UNITS = 24 };

struct name {
    char text[4 * MOST_UNITS + 1];
    int begin[MOST_UNITS + 1], n; /* of each unit, and the end */
};

static struct name some_name(struct chance *r)
{
    struct name x = {.n = 1 + (int)any(r, MOST_UNITS)};
    int before = -1, backslash = 0;

    for (int i = 0; i < x.n; i++) {
        int k = (int)any(r, COUNT(units));
        while (k == 2 && (backslash || before == 1)) /* no other escape comes about */
            k = (int)any(r, COUNT(units));
        backslash = k == 1;
        before = k;
        strcat(x.text, units[k]);
        x.begin[i + 1] = (int)strlen(x.text);
    }
    return x;
}

static int is_begin(const struct name *x, size_t at)
{
    for (int i = 0; i <= x->n; i++)
        if ((size_t)x->begin[i] == at)
            return 1;
    return 0;
}

/* Whatever is cut of it, to whatever length, and wherever: all that stays is whole. */
static void whole_names(void)
{
    static const char ellipsis[] = "\xe2\x80\xa6";
    int columns = 0, bytes = 0, quoted = 0;

    for (uint64_t i = 0; i < 2000; i++) {
        struct chance r = {draw_key(i, "screen"), 0};
        const struct name x = some_name(&r);
        const size_t n = strlen(x.text);
        char to[2 * sizeof x.text];
        for (int width = 1; width < text_columns(x.text); width++) {
            text_cut(x.text, width, to, sizeof to);
            const char *gap = strstr(to, ellipsis);
            const size_t tail = gap ? strlen(gap + 3) : n + 1;
            columns += !gap || tail > n || text_columns(to) > width ||
                       memcmp(x.text, to, (size_t)(gap - to)) != 0 ||
                       strcmp(x.text + n - tail, gap + 3) != 0 ||
                       !is_begin(&x, (size_t)(gap - to)) || !is_begin(&x, n - tail);
        }
        for (size_t size = 1; size <= n; size++) {
            const size_t fit = (size_t)quote_fit(x.text, (int)size);
            bytes += fit > size || !is_begin(&x, fit) || (fit + 4 <= size && fit < n);
            quoted += quote_bytes(x.text, n, to, size) != strlen(to) || strlen(to) >= size ||
                      !is_begin(&x, strlen(to));
        }
    }
    ok(!columns, "2000 names cut to columns: between characters and escapes");
    ok(!bytes, "to bytes");
    ok(!quoted, "and where they are made printable");
}

/* How much is left of n letters and `last` more that are not cut, in so many bytes. */
static size_t kept(size_t n, size_t last, size_t most)
{
    return n + last <= most ? n + last : n < most ? n : most;
}

/* Letters before an escape or a character, in all places where long text is cut. */
static void long_texts(const char *end)
{
    const size_t last = strlen(end);
    int messages = 0, more = 0, cells = 0, page = 0;
    char text[4300];

    for (size_t n = 4000; n < 4200; n++) {
        memset(text, 'a', sizeof text);
        strcpy(text + n, end);
        err_set("%s", text);
        messages += strlen(err_text()) != kept(n, last, 4095);
        err_set("%s", "");
        err_more("%s", text);
        more += strlen(err_text()) != kept(n, last, 4095);
    }
    for (size_t n = 380; n < 420; n++) {
        struct row row = {.n = 0};
        struct printed p;
        memset(text, 'a', sizeof text);
        strcpy(text + n, end);
        row_add(&row, "%s", text);
        cells += strlen(row.cell[0]) != kept(n, last, MAX_CELL - 1);
        print_into(&p, 100);
        html_text(p.screen.to, text);
        fclose(p.screen.to);
        const size_t columns = (size_t)text_columns(end);
        page += strcspn(p.text, "\xe2") !=
                kept(n, columns, 400) + (n + columns <= 400 ? last - columns : 0);
        free(p.text);
    }
    ok(!messages && !more, "a message is cut before %s, or behind it", end);
    ok(!cells, "so is a cell");
    ok(!page, "and what a page shows of a text");
}

/* A table like that of a run: settings of words and numbers, and columns that may go. */
static void make_table(struct table *t, int n_settings)
{
    memset(t, 0, sizeof *t);
    table_add(t, "#", 4, NUMBER, 0);
    for (int i = 0; i < n_settings; i++) {
        char name[16];
        snprintf(name, sizeof name, "setting%d", i);
        table_add(t, name, i % 2 ? 8 : 24, i % 2 ? NUMBER : WORDS, 0);
    }
    t->n_settings = n_settings;
    table_add(t, "kernel", 12, WORDS, 0);
    table_add(t, "median", 8, NUMBER, 0);
    table_add(t, "max", 8, NUMBER, 1);
    table_add(t, "GFLOP/s", 8, NUMBER, 3);
    table_add(t, "GB/s", 8, NUMBER, 2);
    table_add(t, "checks", 8, WORDS, 0);
}

static void print_table(const struct table *t, const struct screen *s, const char *checks)
{
    struct row row = {.n = 0};

    table_head(t, s);
    row_add(&row, "%d", 12);
    for (int i = 0; i < t->n_settings; i++)
        row_add(&row, "%s", i % 2 ? "12345678" : "words_of_twenty-four_let");
    row_add(&row, "block_diagonal_kernel");
    for (int i = 0; i < 4; i++)
        row_add(&row, "98%d.1234", i);
    row_add(&row, "%s", checks);
    table_row(t, s, &row, 1);
    table_row(t, s, &row, 0);
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

/* At every width it fits, numbers are whole, and columns leave in their order. */
static void tables(int n_settings)
{
    struct table t;
    int fits = 1, whole = 1, in_order = 1, before = -1;

    for (int width = 60; width <= 200; width++) {
        struct printed p;
        print_into(&p, width);
        make_table(&t, n_settings);
        table_fit(&t, width);
        print_table(&t, &p.screen, "35 ok");
        fits &= widest(&p) <= width;
        whole &= count(p.text, "980.1234") == 2 && count(p.text, "12345678") >= n_settings / 2;
        const int max = count(p.text, "981.1234"), gflops = count(p.text, "982.1234"),
                  gb = count(p.text, "983.1234"), now = max + gflops + gb;
        in_order &= gflops >= gb && gb >= max;
        /* More room shows more; but where the settings come back from their own line. */
        if (!t.stacked && before >= 0)
            in_order &= now >= before;
        before = t.stacked ? -1 : now;
        free(p.text);
    }
    ok(fits, "%d settings: no line is wider than 60 to 200 columns", n_settings);
    ok(whole, "%d settings: numbers are whole", n_settings);
    ok(in_order, "%d settings: columns leave in the order that they state", n_settings);
}

static void last_cell(void)
{
    struct table t;
    struct printed p;

    print_into(&p, 60);
    make_table(&t, 1);
    table_fit(&t, 60);
    print_table(&t, &p.screen, "FAILED 12 of 345, 67 not judged, and more words");
    ok(widest(&p) <= 60 &&
           strstr(p.text, "\n    FAILED 12 of 345, 67 not judged, and more words\n"),
       "a last cell without room stands below");
    free(p.text);
    make_table(&t, 8);
    table_fit(&t, 80);
    ok(t.stacked, "settings wider than half of the screen have their own line");
    make_table(&t, 1);
    table_fit(&t, 80);
    ok(!t.stacked, "others are columns");

    t = (struct table){.n_settings = 2};
    for (int i = 0; i < 3; i++)
        table_add(&t, i ? "state" : "#", 4, i ? WORDS : NUMBER, 0);
    for (int i = 0; i < 4; i++)
        table_add(&t, "forward", 16, NUMBER, 0);
    table_fit(&t, 80);
    ok(t.stacked, "but for those that leave the numbers no room");
}

/* A number wider than its column is whole; a word is cut. */
static void wide_cells(void)
{
    struct table t = {.n = 0};
    struct row row = {.n = 0};
    struct printed p;

    print_into(&p, 80);
    table_add(&t, "#", 4, NUMBER, 0);
    table_add(&t, "rate", 4, NUMBER, 0);
    table_add(&t, "word", 6, WORDS, 0);
    table_add(&t, "last", 4, WORDS, 0);
    table_fit(&t, 80);
    row_add(&row, "1");
    row_add(&row, "123456789");
    row_add(&row, "checkpoint");
    row_add(&row, "end");
    table_row(&t, &p.screen, &row, 1);
    widest(&p);
    if (!ok(strcmp(p.text, "   1  123456789  che\xe2\x80\xa6nt  end\n") == 0,
            "a number wider than its column is whole, a word is cut"))
        printf("# %s", p.text);
    free(p.text);
}

/* The largest and the smallest that a GPU may give, of each unit. */
static void times_fit(void)
{
    static const struct {
        int unit;
        double x[4];
    } of[] = {
        {FRACTION, {1, 2.0949, 0.0004, 9.9949}},
        {PLAIN, {1.0 / 32 / 132, 0.0606060, 0.484848, 999999}},
        {IN_SECONDS, {1.2345e-9, 999.6e-6, 999.6e-3, 99999}},
        {PER_SECOND, {1, 999.6e3, 999.6e6, 999.6e9}},
        {GIGA_PER_SECOND, {1, 99999.9e9, 694458.8e9, 4.5e15}},
    };
    char text[NUMBER_TEXT];

    for (const struct column *c = time_columns; c->name; c++)
        for (size_t u = 0; c->head && c->kind == 'd' && u < sizeof of / sizeof *of; u++)
            for (int i = 0; (int)c->unit == of[u].unit && i < 4; i++) {
                column_text(c, &of[u].x[i], text);
                ok(text_columns(text) <= c->width || text_columns(text) <= text_columns(c->head),
                   "%s fits the column of %s", text, c->name);
            }
}

static void widths(void)
{
    setenv("COLUMNS", "77", 1);
    ok(screen_of(stdout, 0).width == 77, "COLUMNS is the width");
    setenv("COLUMNS", "many", 1);
    FILE *f = tmpfile();
    ok(f && screen_of(f, 0).width == 120, "of what is no terminal it is 120");
    unsetenv("COLUMNS");
    ok(f && screen_of(f, 0).width == 120, "and without COLUMNS");
    if (f)
        fclose(f);
}

int main(void)
{
    lines();
    cuts();
    whole_names();
    long_texts("\\x1b");
    long_texts("\xc3\xa4");
    for (int n = 0; n <= 12; n += 3)
        tables(n);
    last_cell();
    wide_cells();
    times_fit();
    widths();
    return done();
}
