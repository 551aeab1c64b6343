# ABL_MPI
# -------
# Find mpi.h and a library that has MPI_Init_thread, for run-ablation under mpirun or srun: --with-mpi
# requires it, --without-mpi leaves it out; otherwise it is used if it works.  MPI_CFLAGS and MPI_LIBS
# given by the user win; then pkg-config ompi-c, mpich; then what mpicc says.
AC_DEFUN([ABL_MPI], [
AC_REQUIRE([PKG_PROG_PKG_CONFIG])
AC_ARG_VAR([MPI_CFLAGS], [C flags for mpi.h])
AC_ARG_VAR([MPI_LIBS], [libraries that provide MPI_Init_thread])
AC_ARG_WITH([mpi],
  [AS_HELP_STRING([--with-mpi], [deal trials out to the processes of mpirun and srun [if there is MPI]])],
  [], [with_mpi=check])
AS_IF([test "$with_mpi" != no],
  [AS_IF([test -z "$MPI_LIBS"],
     [PKG_CHECK_MODULES([MPI], [ompi-c], [:],
        [PKG_CHECK_MODULES([MPI], [mpich], [:],
           [AS_IF([mpicc -show >/dev/null 2>&1],
              [MPI_CFLAGS=`mpicc -show | tr ' ' '\n' | grep '^-[[ID]]' | tr '\n' ' '`
               MPI_LIBS=`mpicc -show | tr ' ' '\n' | grep -e '^-[[lL]]' -e '^-Wl,' | tr '\n' ' '`])])])])
   abl_save_CPPFLAGS=$CPPFLAGS abl_save_LIBS=$LIBS
   CPPFLAGS="$CPPFLAGS $MPI_CFLAGS" LIBS="$MPI_LIBS $LIBS"
   AC_MSG_CHECKING([whether MPI works])
   AC_LINK_IFELSE([AC_LANG_PROGRAM([#include <mpi.h>], [int p; MPI_Init_thread(0, 0, MPI_THREAD_FUNNELED, &p);])],
     [abl_mpi=yes], [abl_mpi=no])
   AC_MSG_RESULT([$abl_mpi])
   CPPFLAGS=$abl_save_CPPFLAGS LIBS=$abl_save_LIBS
   AS_IF([test "$abl_mpi" = yes],
     [AC_DEFINE([HAVE_MPI], [1], [Define to 1 if run-ablation has MPI.])],
     [MPI_CFLAGS= MPI_LIBS=
      AS_IF([test "$with_mpi" = yes],
        [AC_MSG_ERROR([--with-mpi: there is no MPI that works; install libopenmpi-dev or set MPI_CFLAGS and MPI_LIBS])])])],
  [MPI_CFLAGS= MPI_LIBS=])
])
