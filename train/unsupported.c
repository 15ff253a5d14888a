/* Functions of train.h that are not built yet. Each says so. */
#include "train/explain.h"

#include <tutti/train.h>

static tutti_status not_built(const char *function, const char *what)
{
	return train_fail(TUTTI_ERR_UNSUPPORTED, "%s: %s are not built yet.", function, what);
}

int tutti_model_state(tutti_model *model, const char *name, void *data, size_t bytes, int per_rank)
{
	(void)model, (void)name, (void)data, (void)bytes, (void)per_rank;
	not_built("tutti_model_state", "checkpoints, which this state would be saved in,");
	return -1;
}

tutti_status tutti_save(tutti_trainer *trainer, const char *dir, int64_t step)
{
	(void)trainer, (void)dir, (void)step;
	return not_built("tutti_save", "checkpoints");
}

tutti_status tutti_save_wait(tutti_trainer *trainer)
{
	(void)trainer;
	return not_built("tutti_save_wait", "checkpoints");
}

tutti_status tutti_load(tutti_trainer *trainer, const char *dir, int64_t *step)
{
	(void)trainer, (void)dir, (void)step;
	return not_built("tutti_load", "checkpoints");
}

tutti_status tutti_export_safetensors(tutti_trainer *trainer, const char *file)
{
	(void)trainer, (void)file;
	return not_built("tutti_export_safetensors", "safetensors files");
}

tutti_status tutti_import_safetensors(tutti_trainer *trainer, const char *file)
{
	(void)trainer, (void)file;
	return not_built("tutti_import_safetensors", "safetensors files");
}
