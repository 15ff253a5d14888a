/* Would break: lists of ranks in messages that name the wrong ranks, or write beyond their text. */
#include "core/rank_list.h"

#include <limits.h>
#include <stdint.h>
#include <string.h>

#include "tests/unit.h"

static void expect(const char *text, size_t text_bytes, const int *ranks, int count)
{
	char room[256];
	struct rank_list list;

	memset(room, '#', sizeof room);
	rank_list_begin(&list, room, text_bytes);
	for (int i = 0; i < count; i++)
		rank_list_add(&list, ranks[i]);
	assert_string_equal(rank_list_end(&list), text);
	assert_int_equal(list.count, count);
	for (size_t i = text_bytes; i < sizeof room; i++)
		assert_int_equal(room[i], '#');
}

#define EXPECT(text, text_bytes, ...)                                                              \
	expect(text, text_bytes, (const int[]){__VA_ARGS__},                                       \
	       (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)))

static void test_lists(void **state)
{
	expect("", 128, NULL, 0);
	EXPECT("rank 0", 128, 0);
	EXPECT("ranks 1, 2", 128, 1, 2);
	EXPECT("ranks 1 to 3", 128, 1, 2, 3);
	EXPECT("ranks 0, 2 to 4, 9", 128, 0, 2, 3, 4, 9);
	EXPECT("ranks 2, 1, 7, 8", 128, 2, 1, 7, 8);
}

static void test_no_room(void **state)
{
	EXPECT("rank 2147483647", RANK_LIST_LEAST, INT_MAX);
	EXPECT("ranks 2147483640 to 2147483647 and 1 more", RANK_LIST_LEAST, INT_MAX - 7,
	       INT_MAX - 6, INT_MAX - 5, INT_MAX - 4, INT_MAX - 3, INT_MAX - 2, INT_MAX - 1,
	       INT_MAX, 0);
	EXPECT("ranks 1, 3, 5, 7, 9 and 2 more", 64, 1, 3, 5, 7, 9, 11, 13);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_no_room),
	};

	return cmocka_run_group_tests_name("rank list", tests, NULL, NULL);
}
