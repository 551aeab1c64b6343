/* Writes HTML (html.h). */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/base/quote.h"
#include "common/page/html.h"

enum { MAX_TEXT = 400, MAX_LINES = 1 << 16 };

static void write_text(FILE *to, const char *text, size_t max, const char *also)
{
    static const char special[] = "&<>\"'";
    static const char *const reference[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};

    for (size_t n = 0; *text; n++) {
        const char *s = strchr(special, *text);
        const int bytes = strchr(also, *text) ? 1 : quote_printable(text, strnlen(text, 4));
        if (n + (quote_escaped(text) ? 4 : 1) > max) {
            fputs("…", to);
            return;
        }
        if (s)
            fputs(reference[s - special], to);
        else if (bytes)
            fwrite(text, 1, (size_t)bytes, to);
        else
            fprintf(to, "\\x%02x", (unsigned char)*text);
        text += bytes ? bytes : 1;
    }
}

void html_text(FILE *to, const char *text)
{
    write_text(to, text, MAX_TEXT, "");
}

void html_lines(FILE *to, const char *text)
{
    write_text(to, text, MAX_LINES, "\n\t");
}

const char *html_number(double x, char text[NUMBER_TEXT])
{
    const double size = fabs(x);

    if (isnan(x))
        snprintf(text, NUMBER_TEXT, "–");
    else if (isinf(x))
        snprintf(text, NUMBER_TEXT, x > 0 ? "∞" : "−∞");
    else if (x == 0)
        snprintf(text, NUMBER_TEXT, "0");
    else if (size < 1e-3 || size >= 1e6)
        snprintf(text, NUMBER_TEXT, size >= 1e6 && size < 1e9 ? "%.0f" : "%.2e", x);
    else
        snprintf(text, NUMBER_TEXT, "%.*f",
                 size < 0.1  ? 4
                 : size < 1  ? 3
                 : size < 10 ? 2
                             : size < 100,
                 x);
    return text;
}

const char *html_seconds(double s, char text[NUMBER_TEXT])
{
    if (!(s > 0) || s > 1e9) {
        snprintf(text, NUMBER_TEXT, "–");
        return text;
    }
    number_seconds(s, text);
    char *micro = strstr(text, "us");
    if (micro)
        strcpy(micro, "µs");
    return text;
}

void html_heading(FILE *to, const char *op, const char *note)
{
    fputs("<h3>", to);
    html_text(to, op);
    if (note)
        fprintf(to, " <small>%s</small>", note);
    fputs("</h3>\n", to);
}

/* ---- tables ---- */

void html_table(FILE *to, const char *heads)
{
    fputs("<div class=\"wide\" tabindex=\"0\"><table><thead><tr>", to);
    for (const char *at = heads; *at;) {
        const int words = *at == '<';
        const size_t n = strcspn(at + words, "|");
        fprintf(to, "<th scope=\"col\"%s>%.*s</th>", words ? "" : " class=\"n\"", (int)n,
                at + words);
        at += n + (size_t)words;
        at += *at == '|';
    }
    fputs("</tr></thead>\n<tbody>\n", to);
}

void html_table_end(FILE *to)
{
    fputs("</tbody></table></div>\n", to);
}

static void cell(FILE *to, const char *class, const char *text)
{
    fprintf(to, "<td%s>", class);
    html_text(to, text);
    fputs("</td>", to);
}

void html_cell(FILE *to, const char *text)
{
    cell(to, "", text);
}

void html_value(FILE *to, const char *text)
{
    cell(to, " class=\"n\"", text);
}

void html_count(FILE *to, int64_t n)
{
    fprintf(to, "<td class=\"n\">%" PRId64 "</td>", n);
}

void html_percent(FILE *to, double fraction, int known)
{
    char text[NUMBER_TEXT];

    snprintf(text, sizeof text, "%.0f %%", fraction < 1e6 ? 100 * fraction : 0);
    html_value(to, known ? text : "–");
}

void html_verdict(FILE *to, const char *verdict)
{
    cell(to,
         strcmp(verdict, "pass") == 0   ? " class=\"good\""
         : strcmp(verdict, "fail") == 0 ? " class=\"bad\""
         : strcmp(verdict, "cannot be judged") == 0 || strcmp(verdict, "missed") == 0
             ? " class=\"unsure\""
             : "",
         verdict);
}
