# ABL_HDF5
# --------
# Find serial HDF5: HDF5_CFLAGS/HDF5_LIBS from the user, then pkg-config,
# then `h5cc -show`, then the default search path; and the high-level library
# (dimension scales) beside it.
AC_DEFUN([ABL_HDF5], [
AC_REQUIRE([PKG_PROG_PKG_CONFIG])
AC_ARG_VAR([HDF5_CFLAGS], [C flags for hdf5.h])
AC_ARG_VAR([HDF5_LIBS], [libraries for HDF5])
AS_IF([test -z "$HDF5_LIBS"],
  [PKG_CHECK_MODULES([HDF5], [hdf5 >= 1.10], [:],
    [AC_PATH_PROG([H5CC], [h5cc])
     AS_IF([test -n "$H5CC"],
       [for abl_w in `$H5CC -show 2>/dev/null`; do
          AS_CASE([$abl_w],
            [-I*], [AS_VAR_APPEND([HDF5_CFLAGS], [" $abl_w"])],
            [-L*|-l*|*.a|*.so], [AS_VAR_APPEND([HDF5_LIBS], [" $abl_w"])])
        done],
       [HDF5_LIBS=-lhdf5])])])
abl_save_CPPFLAGS=$CPPFLAGS abl_save_LIBS=$LIBS
CPPFLAGS="$CPPFLAGS $HDF5_CFLAGS" LIBS="$HDF5_LIBS $LIBS"
AC_CHECK_HEADER([hdf5.h], [], [AC_MSG_ERROR([hdf5.h not found; install HDF5 (libhdf5-dev) or set HDF5_CFLAGS])])
AC_CHECK_FUNC([H5open], [], [AC_MSG_ERROR([HDF5 does not link with $HDF5_LIBS])])
AC_CHECK_HEADER([hdf5_hl.h], [], [AC_MSG_ERROR([hdf5_hl.h not found; install HDF5's high-level part])])
abl_hdf5_hl=no
for abl_w in hdf5_serial_hl hdf5_hl; do
  AC_MSG_CHECKING([for H5DSset_scale in -l$abl_w])
  LIBS="-l$abl_w $HDF5_LIBS $abl_save_LIBS"
  AC_LINK_IFELSE([AC_LANG_CALL([], [H5DSset_scale])],
    [abl_hdf5_hl=-l$abl_w; AC_MSG_RESULT([yes]); break], [AC_MSG_RESULT([no])])
done
AS_IF([test $abl_hdf5_hl = no],
  [AC_MSG_ERROR([HDF5's high-level library does not link with $HDF5_LIBS])])
# After the -L flags that HDF5_LIBS begins with, before -lhdf5 itself.
HDF5_LIBS="`AS_ECHO(["$HDF5_LIBS"]) | sed "s/-lhdf5/$abl_hdf5_hl &/"`"
AS_CASE([$HDF5_LIBS], [*$abl_hdf5_hl*], [], [HDF5_LIBS="$abl_hdf5_hl $HDF5_LIBS"])
CPPFLAGS=$abl_save_CPPFLAGS LIBS=$abl_save_LIBS
])
