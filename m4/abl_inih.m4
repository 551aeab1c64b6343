# ABL_INIH
# --------
# Find libinih: INIH_CFLAGS/INIH_LIBS from the user, then pkg-config, then
# -linih.
AC_DEFUN([ABL_INIH], [
AC_REQUIRE([PKG_PROG_PKG_CONFIG])
AC_ARG_VAR([INIH_CFLAGS], [C flags for ini.h])
AC_ARG_VAR([INIH_LIBS], [libraries for inih])
AS_IF([test -z "$INIH_LIBS"],
  [PKG_CHECK_MODULES([INIH], [inih], [:], [INIH_LIBS=-linih])])
abl_save_CPPFLAGS=$CPPFLAGS abl_save_LIBS=$LIBS
CPPFLAGS="$CPPFLAGS $INIH_CFLAGS" LIBS="$INIH_LIBS $LIBS"
AC_CHECK_HEADER([ini.h], [], [AC_MSG_ERROR([ini.h not found; install inih (libinih-dev) or set INIH_CFLAGS])])
AC_CHECK_FUNC([ini_parse_stream], [], [AC_MSG_ERROR([inih does not link with $INIH_LIBS])])
CPPFLAGS=$abl_save_CPPFLAGS LIBS=$abl_save_LIBS
])
