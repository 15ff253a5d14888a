/* Breaks when reductions leave instructions of this CPU unused, or claim some that it does not
 * have. */
#include "core/simd.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

/* What the kernel says that the CPU has, with a space on either side of each word. */
static char *cpu_flags(void)
{
	FILE *file = fopen("/proc/cpuinfo", "r");
	char *line = NULL;
	size_t bytes = 0;

	assert_non_null(file);
	while (getline(&line, &bytes, file) > 0 && strncmp(line, "flags", 5) != 0)
		continue;
	fclose(file);
	line[strcspn(line, "\n")] = ' ';
	return line;
}

static bool is_listed(const char *name)
{
	for (int i = 0; i <= (int)simd_highest(); i++)
		if (strcmp(simd_name((enum simd_level)i), name) == 0)
			return true;
	return false;
}

static void the_list_is_what_the_cpu_has(void **state)
{
#ifdef __x86_64__
	static const struct {
		const char *level, *flag;
	} rows[] = {
		{"avx2", " avx2 "},
		{"avx512", " avx512dq "},
#if __GNUC__ >= 12 || __clang_major__ >= 14
		{"avx512_bf16", " avx512_bf16 "},
		{"avx512_fp16", " avx512_fp16 "},
#endif
	};
	char *flags = cpu_flags();

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		bool has = strstr(flags, rows[i].flag) != NULL;
		print_message("%s: %s\n", rows[i].level, has ? "yes" : "no");
		assert_int_equal(is_listed(rows[i].level), has);
	}
	free(flags);
#endif
	assert_true(is_listed("base"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(the_list_is_what_the_cpu_has)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
