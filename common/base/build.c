/* Which program this is (build.h). */
#include "config.h"

#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/base/build.h"
#include "common/base/grow.h"

#if defined __GNUC__ && !defined __clang__
#define COMPILER "GCC " __VERSION__
#else
#define COMPILER __VERSION__
#endif

/* Where this function is, and what the id is to be written to. */
struct looked_for {
    uintptr_t at;
    char *text;
};

/* Notes lie one behind the other: sizes, type, name and contents, each at a multiple of 4. */
static void add_id(const char *note, size_t bytes, char *text)
{
    const char *end = note + bytes;
    ElfW(Nhdr) n;

    while ((size_t)(end - note) > sizeof n) {
        memcpy(&n, note, sizeof n);
        const char *name = note + sizeof n;
        const unsigned char *id = (const unsigned char *)name + ((n.n_namesz + 3) & ~3u);
        note = (const char *)id + ((n.n_descsz + 3) & ~3u);
        if (note > end || n.n_type != NT_GNU_BUILD_ID || strcmp(name, "GNU") != 0)
            continue;
        append(text, BUILD_TEXT, ", ");
        for (size_t i = 0; i < n.n_descsz; i++)
            append(text, BUILD_TEXT, "%02x", id[i]);
        return;
    }
}

/* Of the program or library that has this function. */
static int look_at(struct dl_phdr_info *info, size_t size, void *data)
{
    const struct looked_for *l = data;
    int ours = 0;

    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        ours |= p->p_type == PT_LOAD && l->at - (info->dlpi_addr + p->p_vaddr) < p->p_memsz;
    }
    for (int i = 0; ours && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_NOTE)
            add_id((const char *)(info->dlpi_addr + p->p_vaddr), p->p_memsz, l->text);
    }
    return ours;
}

const char *build_text(char text[BUILD_TEXT])
{
    struct looked_for l = {(uintptr_t)build_text, text};

    snprintf(text, BUILD_TEXT, "%s, %s", PACKAGE_STRING, COMPILER);
    dl_iterate_phdr(look_at, &l);
    return text;
}
