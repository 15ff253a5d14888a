/* The text of a mesh: what is refused, and with which words; the size that is left open; places. */
#include "train/mesh/axes.h"

#include <limits.h>
#include <string.h>

#include "tests/unit.h"

static void refused(const char *text, int ranks, const char *reason)
{
	char why[AXES_WHY_BYTES] = "";
	struct axes axes;

	assert_false(axes_read(&axes, text, why) && axes_fit(&axes, ranks, why));
	if (!strstr(why, reason))
		fail_msg("'%s': '%s' does not say '%s'", text, why, reason);
}

static void test_refused(void **state)
{
	refused("", 1, "'' is no mesh");
	refused("dp", 1, "'dp' is no mesh");
	refused("dp=", 1, "is no mesh");
	refused("dp=2,", 2, "is no mesh");
	refused("dp=2x", 2, "is no mesh");
	refused("dp=99999999999999999999", 2, "is no mesh");
	refused("=2", 2, "names are 1 to 31");
	refused("Dp=2", 2, "'Dp', but names are");
	refused("a2345678901234567890123456789012=2", 2, "names are 1 to 31");
	refused("dp=2,tp=2,dp=1", 4, "'dp' is named twice");
	refused("dp=-2", 2, "'dp' has size -2");
	refused("dp=0,tp=0", 2, "'dp' and 'tp' both have size 0");
	refused("a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1", 1, "more than 8 axes");
	refused("dp=2,tp=4", 6, "dp=2,tp=4 has 8 ranks, but there are 6");
	refused("dp=0,tp=4", 6, "no size for 'dp': 6 ranks are no multiple of 4");
	refused("dp=0,tp=4", 2, "2 ranks are no multiple of 4");
	refused("a=65536,b=65536,c=65536,d=65536,e=65536", INT_MAX, "more ranks than there can be");
}

static void test_places(void **state)
{
	char why[AXES_WHY_BYTES], text[AXES_TEXT_BYTES];
	struct axes axes;

	assert_true(axes_read(&axes, "dp=3,cp=0,tp=2", why));
	assert_true(axes_fit(&axes, 24, why));
	axes_write(text, &axes);
	assert_string_equal(text, "dp=3,cp=4,tp=2");
	assert_int_equal(axes_find(&axes, "cp", 2), 1);
	assert_int_equal(axes_find(&axes, "cpx", 2), 1);
	assert_int_equal(axes_find(&axes, "c", 1), -1);
	for (int r = 0; r < 24; r++) {
		assert_int_equal(axes_coord(&axes, 0, r), r / 8);
		assert_int_equal(axes_coord(&axes, 1, r), r / 2 % 4);
		assert_int_equal(axes_coord(&axes, 2, r), r % 2);
	}
}

/* The longest names and sizes have room. */
static void test_longest(void **state)
{
	char why[AXES_WHY_BYTES], text[AXES_TEXT_BYTES], name[AXIS_NAME_BYTES];
	struct axes axes = {0};

	memset(name, 'a', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	for (int i = 0; i < AXES_MAX; i++) {
		name[0] = (char)('a' + i);
		assert_true(axes_add(&axes, name, INT_MAX, why));
	}
	axes_write(text, &axes);
	assert_int_equal(strlen(text), AXES_MAX * (AXIS_NAME_BYTES + 10) + AXES_MAX - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_longest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
