/* Finds the lane of a rank to or from a peer without a search. */
#include "lane_map.h"

#include "tools/must.h"

void lane_map_open(struct lane_map *map, const struct plan_set *set)
{
	size_t n = (size_t)set->size;

	map->size = set->size;
	for (int sends = 0; sends < 2; sends++)
		map->of[sends] = must_alloc(n * n, sizeof(uint32_t));
	for (int r = 0; r < set->size; r++)
		for (uint32_t l = 0; l < set->of[r]->lane_count; l++) {
			const struct lane *lane = &set->of[r]->lanes[l];
			if (lane->peer >= 0)
				map->of[lane->sends][(size_t)r * n + (size_t)lane->peer] = l + 1;
		}
}

void lane_map_close(struct lane_map *map)
{
	free(map->of[0]);
	free(map->of[1]);
}
