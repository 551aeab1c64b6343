/* build.h - which program this is: two builds whose results may have other bits have other names. */
#ifndef BUILD_H
#define BUILD_H

enum { BUILD_TEXT = 200 };

/* "ablate 0.1, GCC 12.2.0, 3f9c...": the version, the compiler, and the linker's build id, a hash of the program's code,
 * where there is one. */
const char *build_text(char text[BUILD_TEXT]);

#endif
