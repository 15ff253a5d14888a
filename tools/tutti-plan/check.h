/* Checks the plans of all ranks of one call together: whether they end, and end with what the collective
 * promises, whatever the order in which steps happen. Symbolically; no byte is moved. */
#ifndef TUTTI_PLAN_CHECK_H
#define TUTTI_PLAN_CHECK_H

#include "look.h"

/* The first thing that is wrong, as a message that names rank and step. */
struct finding {
	char text[1024];
};

/* Writes the message and returns false. */
bool check_says(struct finding *finding, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* True: nothing is wrong. The four parts in the order in which check_plans takes them; each relies on what
 * the ones before have found right. */
bool check_plans(const struct plan_set *set, struct finding *finding);
bool check_messages(const struct plan_set *set, struct finding *finding);
bool check_order(const struct plan_set *set, struct finding *finding);
/* Executes all ranks. rendezvous: a send ends when its receive has been posted, and is read then; else at
 * once. */
bool check_execution(const struct plan_set *set, bool rendezvous, struct finding *finding);

/* The lanes of all ranks: of[sends][rank * size + peer] is the lane + 1, 0 where there is none. */
struct lane_map {
	uint32_t *of[2];
	int size;
};
void lane_map_open(struct lane_map *map, const struct plan_set *set);
void lane_map_close(struct lane_map *map);
static inline uint32_t lane_map_find(const struct lane_map *map, bool sends, int rank, int peer)
{
	return map->of[sends][(size_t)rank * (size_t)map->size + (size_t)peer];
}

#endif
