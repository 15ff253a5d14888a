/* Where the lanes of all ranks lead. */
#ifndef TUTTI_PLAN_LANE_MAP_H
#define TUTTI_PLAN_LANE_MAP_H

#include "look.h"

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
