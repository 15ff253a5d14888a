/* no_tsan: it has one thread */
/* Two groups that go on at once, because they count other ranks or break a tie differently; and
 * survivors who stop although nobody else can go on. */
#include "collectives/control/quorum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define MOST 6

/* Of voters, those in present are ranks of the communicator, and those in gone are known to be
 * dead. */
static bool may_go_on(int voters, unsigned present, unsigned gone, unsigned here)
{
	struct quorum first, l;
	int ranks[MOST], size = 0;
	uint8_t is_here[MOST] = {0};

	for (int f = 0; f < voters; f++)
		if (present >> f & 1) {
			is_here[size] = here >> f & 1;
			ranks[size++] = f;
		}
	assert_int_equal(quorum_begin(&first, voters), TUTTI_OK);
	for (int f = 0; f < voters; f++)
		if (gone >> f & 1)
			quorum_mark_dead(&first, f);
	assert_int_equal(quorum_follow(&l, &first, ranks, size), TUTTI_OK);
	bool may = quorum_is_reached(&l, is_here);
	quorum_finish(&l);
	quorum_finish(&first);
	return may;
}

/* Two groups without a common rank, of which neither knows one of the other to be dead: never both,
 * whatever each knows of the rest. */
static void groups_meet(void **state)
{
	static bool may[1 << MOST][1 << MOST];

	for (int n = 1; n <= MOST; n++) {
		unsigned all = (1u << n) - 1;
		for (unsigned here = 1; here <= all; here++)
			for (unsigned gone = 0; gone <= all; gone++)
				may[here][gone] = !(here & gone) && may_go_on(n, all, gone, here);
		for (unsigned a = 1; a <= all; a++)
			for (unsigned b = 1; b <= all; b++)
				for (unsigned i = 0; !(a & b) && i <= all; i++)
					for (unsigned j = 0; may[a][i] && j <= all; j++)
						if (may[b][j] && !(a & j) && !(b & i))
							fail_msg(
								"%x with %x dead, %x with %x dead, "
								"of %d",
								a, i, b, j, n);
	}
}

/* A majority of the voters it is, through any number of shrinks. */
static void generations_count_alike(void **state)
{
	unsigned all = (1u << MOST) - 1;

	for (unsigned here = 1; here <= all; here++)
		for (unsigned gone = 0; gone <= all; gone++)
			for (unsigned present = here; present <= all; present++)
				if ((present & here) == here && !(here & gone))
					assert_int_equal(may_go_on(MOST, present, gone, here),
							 may_go_on(MOST, all, gone, here));
}

/* The cases that users are told of. */
static void cases(void **state)
{
	static const struct {
		int voters;
		unsigned present, gone, here;
		bool wanted;
	} list[] = {
		/* one of two: the other is dead; it is silent */
		{2, 3, 2, 1, true},
		{2, 3, 1, 2, true},
		{2, 3, 0, 1, true},
		{2, 3, 0, 2, false},
		/* of three, one is dead and one silent */
		{3, 7, 4, 1, true},
		{3, 7, 1, 4, false},
		{3, 7, 1, 2, true},
		{3, 7, 6, 1, true},
		/* halves of four, and what is left when the lowest is dead */
		{4, 15, 0, 3, true},
		{4, 15, 0, 12, false},
		{4, 15, 3, 12, true},
		{4, 15, 1, 6, true},
		{4, 15, 9, 4, false},
		/* two were left behind by five, then one of the three dies */
		{5, 7, 4, 3, true},
		{5, 28, 16, 12, false},
		{5, 28, 17, 12, true},
		{1, 1, 0, 1, true},
	};

	for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
		if (may_go_on(list[i].voters, list[i].present, list[i].gone, list[i].here) !=
		    list[i].wanted)
			fail_msg("case %zu", i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cases),
		cmocka_unit_test(groups_meet),
		cmocka_unit_test(generations_count_alike),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
