#!/bin/sh
# The Python package as pip installs it: which library it takes, what it says, and that it writes nothing into
# the source.  The source is a copy of python/ below a configure and a make that have the library of this
# build at once.  PYTHON has numpy; srcdir comes from the Makefile.  TAP on stdout.
folder=ablate # configure takes no folder with a blank
case $TMPDIR in
*[[:space:]]*) TMPDIR=/tmp ;;
esac
. "${srcdir:-.}/tests/runner_tap.sh"
give_up() {
    echo "1..0 # SKIP $1"
    exit 0
}
case $CFLAGS in
*-fsanitize*) give_up "Python is not built with the sanitizers that the library is built with" ;;
esac
[ -n "$PYTHON" ] || give_up "no Python with numpy"
"$PYTHON" -m venv "$dir/venv" >out 2>&1 || give_up "no Python with venv"
python=$dir/venv/bin/python
timeout 120 "$python" -m pip install -q --disable-pip-version-check --retries 1 'setuptools>=70.1' wheel >out 2>&1 ||
    give_up "setuptools 70.1 cannot be installed"
numpy=`"$PYTHON" -c 'import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))'`
# Without a terminal of its own, messages go to the output.
alone=
if setsid -w true 2>/dev/null; then alone='setsid -w'; fi
unset ABLATE_LIBRARY ABLATE_CONFIGURE ABLATE_PROGRAM PYTHONPATH MAKEFLAGS MFLAGS MAKELEVEL
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE

mkdir tree
tree=$dir/tree
cp -R "$srcdir/python" tree/python
chmod -R u+w tree
rm -rf tree/python/ablate/_lib
# As automake's: from another folder it refuses a source that is configured.  Its options are kept, and with
# --without-cuda no kernel is there.
cat >tree/configure <<EOF
#!/bin/sh
source=\`dirname "\$0"\`
here=\`pwd\`
if [ "\$here" != "\`cd "\$source" && pwd\`" ] && [ -f "\$source/config.status" ]; then
    echo "configure: error: source directory already configured" >&2
    exit 1
fi
echo "\$here: \$*" >>"$dir/configured"
case " \$* " in *" --without-cuda "*) echo ;; *) echo "#define HAVE_CUDA 1" ;; esac >config.h
echo >config.status
cat >Makefile <<END
libablate.so: \$source/changed
	@echo '  CC       one.o'
	@echo "\$here" >>"$dir/made"
	@cp "`dirname "$run"`/libablate.so" libablate.so
dist:
	@echo >ablate-0.1.tar.gz
END
EOF
chmod +x tree/configure
touch tree/changed

# pips NAME STATUS PATTERN ARGUMENT...: pip with these words exits so, and says that.
pips() {
    what=$1 wanted=$2 said=$3
    shift 3
    : >configured
    : >made
    does "$what" "$wanted" "$said" $alone "$python" -m pip -v --disable-pip-version-check "$@" </dev/null
}
installs() {
    what=$1 said=$2
    shift 2
    pips "$what" 0 "$said" install --no-deps --no-build-isolation --force-reinstall "$@" ./tree/python
}
# It is loaded with its own library, from a folder that says nothing of it.
works() {
    (cd / && PYTHONPATH=$numpy "$python" -c "
import ablate, os, sys
from ablate._library import library_path
ablate.op('softmax')
print(library_path)
sys.exit('$1' not in os.path.realpath(library_path))") >out 2>err
    ok $? "$2"
}
# In which folders configure and make ran.
none() {
    [ ! -s configured ] && [ ! -s made ]
    ok $? "$1"
}
listed() {
    find tree ! -name __pycache__ -exec ls -ldn --time-style=full-iso {} + | grep -v ' tree/python$' | sort
}
unchanged() {
    listed | cmp before - >err 2>&1
    ok $? "$1"
}

listed >before
installs "a source that is not configured" "ABLATE_CONFIGURE=--without-cuda leaves them out"
works venv "and the package works"
[ `wc -l <configured` = 1 ] && ! grep -q "^$tree:" configured
ok $? "it is configured in a folder of its own"
unchanged "and nothing is written into the source"
installs "a second time" "builds the library with its CUDA kernels"
unchanged "nor then"
export ABLATE_CONFIGURE=--without-cuda
installs "ABLATE_CONFIGURE=--without-cuda" "without CUDA, which takes half a minute"
grep -q ' --without-cuda$' configured
ok $? "is an option of configure"
unset ABLATE_CONFIGURE
installs "the setting configure" "without CUDA, which takes half a minute" --config-settings configure=--without-cuda
pips "pip wheel" 0 "Successfully built ablate" wheel --no-deps --no-build-isolation -w wheels ./tree/python
"$python" -m zipfile -l wheels/ablate-*.whl >out 2>&1 && grep -q 'ablate/_lib/libablate.so ' out &&
    ls wheels | grep -q '^ablate-[0-9.]*-py3-none-linux'
ok $? "its wheel has the library"

# README's order.
(cd tree && ./configure -q && make libablate.so) >out 2>&1
listed >before
installs "a source that is configured and made" "takes the library that is built in $tree"
works venv "and the package works"
none "nothing is configured or made again"
unchanged "nothing is written into the source"
installs "options in such a source" "without CUDA, which takes half a minute" --config-settings configure=--without-cuda
! grep -q "^$tree:" configured && [ -s configured ] && [ `cat made` != "$tree" ]
ok $? "are those of a build of its own"
unchanged "and the source is left alone"
: >configured
(cd tree/python && "$python" -c "
import sys
sys.path.insert(0, 'backend')
import ablate_build
print(ablate_build.build_sdist('$dir'))") >out 2>err && [ -f ablate-0.1.tar.gz ]
ok $? "its source distribution"
unchanged "leaves it alone, too"
sleep 1
touch tree/changed
installs "a library that is older than the source" "builds the library in $tree, as it is configured"
[ "`cat made`" = "$tree" ]
ok $? "is made anew, where it is"
works venv "and the package works"

# Without another installation.
installs "an editable installation" "takes the library that is built in $tree" -e
works "$tree/libablate.so" "uses the library of the source"
rm -rf tree/python/ablate/_lib

# Libraries that are named.
cp tree/libablate.so named.so
export ABLATE_LIBRARY="$dir/named.so"
installs "ABLATE_LIBRARY" "takes the library $dir/named.so"
none "is taken as it is"
unset ABLATE_LIBRARY
installs "the setting library" "takes the library $dir/named.so" --config-settings library="$dir/named.so"
# refused NAME SENTENCE LIBRARY
refused() {
    pips "$1" 1 "^ *ablate: $2$" install --no-deps --no-build-isolation --config-settings library="$3" ./tree/python
    cat out err | grep -q Traceback
    [ $? = 1 ]
    ok $? "$1: without a traceback"
}
refused "a library that is not there" "there is no library $dir/no.so" "$dir/no.so"
echo 'const char *abl_version(void) { return "0.0"; }' >old.c
$CC -shared -fPIC -o old.so old.c
refused "another version's library" "the package cannot use the library $dir/old.so: .*another version's" "$dir/old.so"
echo text >text.so
refused "a file that is no library" "the package cannot use the library $dir/text.so: .*cannot be loaded.*" "$dir/text.so"
rm -f tree/config.status tree/Makefile tree/config.h tree/libablate.so
printf '#!/bin/sh\nexit 3\n' >tree/configure
pips "a configure that fails" 1 "^ *ablate: .*configure -q: exit status 3; ./install-deps in the source " \
    install --no-deps --no-build-isolation ./tree/python

# pip shows nothing of this without -v, but a terminal has it.
printf '#!/bin/sh\nexit 3\n' >tree/configure
if script -qec true /dev/null >/dev/null 2>&1 </dev/null; then
    ABLATE_LIBRARY=$dir/named.so script -qec \
        "'$python' -m pip --disable-pip-version-check install --no-deps --no-build-isolation --force-reinstall ./tree/python" \
        /dev/null </dev/null >out 2>err
    grep -q "^ablate: takes the library $dir/named.so" out
    ok $? "on a terminal it says so without -v"
else
    skip "on a terminal it says so without -v" "no script of util-linux"
fi
echo "1..$n"
