/* Would break: places of shared memory that lead another rank elsewhere, or out of it. */
#include "tests/collectives/thread_ranks.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

enum { COUNT = 5000, OFFSET = 33 };

static void check(struct rank *r, int holds, const char *what)
{
	if (!holds)
		report_wrong(r, what, TUTTI_OK);
}

static void read_all(struct rank *r, const tutti_mem_place *places)
{
	for (int rank = 0; rank < r->size; rank++) {
		const int *there = tutti_mem_at(&places[rank], sizeof(int), r->comm);
		check(r, there && *there == 1000 + rank, "what lies at a place");
	}
}

/* Places that are in no allocation, or end behind one. */
static void refuse(struct rank *r, const tutti_mem_place *own)
{
	tutti_mem_place place = {0, 0};
	int plain = 0;

	check(r, !tutti_mem_at(&place, 1, r->comm), "an address of nowhere");
	check(r, !tutti_mem_at(NULL, 1, r->comm) && !tutti_mem_at(own, 1, NULL),
	      "an address of NULL");
	check(r, !tutti_mem_at(own, SIZE_MAX - 8, r->comm), "more bytes than there are");
	place = (tutti_mem_place){own->allocation, SIZE_MAX - 8};
	check(r, !tutti_mem_at(&place, 64, r->comm), "an address behind the end");
	place = (tutti_mem_place){own->allocation + 1000, 0};
	check(r, !tutti_mem_at(&place, 1, r->comm), "an address in another allocation");
	expect(r, "ordinary memory", tutti_mem_place_of(&place, &plain, sizeof plain, r->comm));
	check(r, place.allocation == 0 && place.offset == 0, "a place of ordinary memory");
	check(r, tutti_mem_place_of(NULL, &plain, 1, r->comm) == TUTTI_ERR_INVALID, "place NULL");
	check(r, tutti_mem_place_of(&place, &plain, 1, NULL) == TUTTI_ERR_INVALID, "comm NULL");
}

static void exchange(struct rank *r)
{
	tutti_mem_place places[RANKS_MAX] = {{0, 0}}, *own = &places[r->rank];
	int *memory = NULL;

	expect(r, "mem_alloc", tutti_mem_alloc((void **)&memory, COUNT * sizeof *memory, r->comm));
	int *mine = memory + OFFSET * (r->rank + 1);
	*mine = 1000 + r->rank;
	tutti_status status = tutti_mem_place_of(own, mine, sizeof *mine, r->comm);
	expect(r, "all_gather",
	       tutti_all_gather(own, places, sizeof *own, TUTTI_U8, r->comm, NULL));
	if (status == TUTTI_OK && r->size > 1) {
		read_all(r, places);
		refuse(r, own);
	} else if (r->size > 1)
		check(r,
		      status == TUTTI_ERR_UNSUPPORTED &&
			      !tutti_mem_at(&(tutti_mem_place){1, 0}, 1, r->comm),
		      "ranks that share no memory");
	expect(r, "barrier", tutti_barrier(r->comm, NULL));
	expect(r, "mem_free", tutti_mem_free(memory));
}

static void test_places(void **state)
{
	everywhere(exchange);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_places)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
