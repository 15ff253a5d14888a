/* Homes: units that compute in the same stream have their values in one place. Homes are numbered
 * in the order of their first units, so they have the same numbers on all ranks. */
#include "train/base/base.h"
#include "train/model/model.h"

#include <stdlib.h>

void *unit_stream(const struct tutti_model *model, const tutti_train_config *config, int unit)
{
	void *own = model->units[unit].stream;

	return own ? own : config->stream;
}

int unit_leader(const struct tutti_model *model, const tutti_train_config *config, int unit)
{
	void *stream = unit_stream(model, config, unit);
	int leader = 0;

	while (unit_stream(model, config, leader) != stream)
		leader++;
	return leader;
}

tutti_status layout_homes(struct model_layout *layout, const struct tutti_model *model,
			  const tutti_train_config *config)
{
	layout->home_count = 0;
	layout->unit_homes = malloc(((size_t)model->unit_count + 1) * sizeof *layout->unit_homes);
	if (!layout->unit_homes)
		return fail_no_memory("the model's layout");
	for (int u = 0; u < model->unit_count; u++) {
		int leader = unit_leader(model, config, u);
		layout->unit_homes[u] =
			leader < u ? layout->unit_homes[leader] : layout->home_count++;
	}
	if (model->unit_count == 0)
		layout->home_count = 1;
	return TUTTI_OK;
}

int home_unit(const struct model_layout *layout, const struct tutti_model *model, int home)
{
	for (int u = 0; u < model->unit_count; u++)
		if (layout->unit_homes[u] == home)
			return u;
	return -1;
}
