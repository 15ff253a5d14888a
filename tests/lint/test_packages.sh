#!/usr/bin/env bash
# slow: 20 s
# What would break: the Debian packages, which `cpack` makes: a file that is in none of them or in two, a dependency that is
# missing, a program linked with what they have that does not start, manual pages that lack a function or a program.
# script/environments packages installs them in a root of its own.
set -u
. "$SOURCE_DIR/tests/scratch.sh"
for tool in cpack dpkg-deb dpkg-shlibdeps file; do
	command -v $tool >/dev/null || { echo "no $tool: dpkg-dev, file or cpack is not installed"; exit 77; }
done

cpack --config "$BUILD_DIR/CPackConfig.cmake" -B "$PWD/made" >cpack.out 2>&1 || { cat cpack.out; exit 1; }
version=$(sed -n 's/^project(tutti VERSION \([0-9.]*\) .*/\1/p' "$SOURCE_DIR/CMakeLists.txt")
mkdir root
for package in libtutti1 libtutti-rpc1 libtutti-train1 libtutti-dev tutti-tools python3-tutti; do
	deb=$(echo "made/${package}_${version}_"*.deb)
	[ -e "$deb" ] || { complain "no $package"; continue; }
	dpkg-deb -x "$deb" root
	dpkg-deb -c "$deb" | awk '!/^d/ { print $6 }' >>files
	dpkg-deb -f "$deb" Depends >"$package.depends"
done
grep -q 'libc6.*libsodium23' libtutti1.depends || complain "libtutti1 depends on: $(cat libtutti1.depends)"
for package in libtutti-rpc1 libtutti-train1 libtutti-dev tutti-tools python3-tutti; do
	grep -qF "libtutti1 (= $version)" $package.depends || complain "$package depends on: $(cat $package.depends)"
done
[ -z "$(sort files | uniq -d)" ] || complain "in two packages: $(sort files | uniq -d)"
cmake --install "$BUILD_DIR" --prefix "$PWD/whole" >install.out 2>&1 || complain "$(tail -3 install.out)"
(cd whole && find . ! -type d) | sed 's|^\./|./usr/|' | sort >installed
[ -z "$(sort files | comm -3 - installed)" ] || complain "in no package, or not installed: $(sort files | comm -3 - installed | head -5)"

# ---- what is in them works
cat >hello.c <<'END'
#include <stdio.h>
#include <tutti/tutti.h>

int main(void)
{
	tutti_comm *comm;
	float x = 1;

	if (tutti_init(&comm, NULL) != TUTTI_OK)
		return 1;
	tutti_all_reduce(&x, &x, 1, TUTTI_F32, TUTTI_SUM, comm, NULL);
	printf("%g\n", x);
	tutti_comm_destroy(comm);
	return 0;
}
END
export PKG_CONFIG_PATH=$PWD/root/usr/lib/pkgconfig LD_LIBRARY_PATH=$PWD/root/usr/lib
# shellcheck disable=SC2046
gcc hello.c -o hello $(pkg-config --cflags --libs tutti) || complain "a program does not link"
expect 0 root/usr/bin/tuttirun -n 3 ./hello
[ "$(sort -u out)" = 3 ] || complain "the program says: $(cat out)"

for python in python3 /usr/bin/python3; do
	PYTHONPATH=root/usr/lib/python3/dist-packages $python -c 'import tutti; print(tutti.init().all_reduce)' >out 2>&1 ||
		complain "$python: $(tail -1 out)"
done

# ---- manual pages and completion
man=root/usr/share/man
for library in tutti tutti_rpc tutti_train; do
	nm -D --defined-only root/usr/lib/lib$library.so.1
done | sed -n 's/^.* T \(tutti_.*\)@@.*/\1/p' >functions
while read -r function; do
	[ -s "$man/man3/$function.3" ] || complain "no manual page of $function"
done <functions
grep -q 'Passing it fails the communicator' $man/man3/tutti.3 || complain "tutti(3) has no struct tutti_call"
grep -q 'the same error' $man/man3/tutti_comm_split.3 || complain "$(cat $man/man3/tutti_comm_split.3)"
for program in root/usr/bin/*; do
	name=${program##*/}
	grep -q '^usage' "$man/man1/$name.1" || complain "no manual page of $name"
	grep -qF "_longopt $name" "root/usr/share/bash-completion/completions/$name" || complain "no completion of $name"
done
# They are written anew when a program changes, also one in Python.
ninja -C "$BUILD_DIR" -t query man/stamp >needs
for module in "$SOURCE_DIR"/tools/tutti-*/tutti_*/*.py "$SOURCE_DIR"/perf/harness/*.py; do
	grep -qF "${module#"$SOURCE_DIR"/}" needs || complain "the manual page stays when $module changes"
done
if command -v groff >/dev/null; then
	said=$(cd $man && for page in man?/*; do groff -man -ww -z "$page" 2>&1; done)
	[ -z "$said" ] || complain "groff says: $(head -3 <<<"$said")"
fi

# ---- the recipes know the version, and no option that there is not
recipes=$SOURCE_DIR/cmake/packaging
grep -qx "  version: \"$version\"" "$recipes/conda/recipe.yaml" || complain "cmake/packaging/conda/recipe.yaml has another version"
spack=$recipes/spack/spack_repo/tutti/packages/tutti/package.py
{ grep -oE 'TUTTI_[A-Z]+' "$recipes/conda/recipe.yaml"; sed -nE '/^OPTIONS/s/"([a-z]+)"/\nTUTTI_\U\1\n/gp' "$spack" | grep TUTTI_; } |
	while read -r option; do
		grep -q "^option($option " "$SOURCE_DIR/CMakeLists.txt" || echo "$option"
	done >unknown
[ ! -s unknown ] || complain "options of recipes that there are not: $(cat unknown)"
python3 -B -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$spack" || complain "the recipe of Spack is no Python"
exit $failures
