// Defaults, and the rules for jobs that did not come from a file.

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "proto/support/job_file.h"
#include "proto/support/job_schema.h"

namespace metp {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::JobSpec Minimal(v1::ModelSpec::Family family = v1::ModelSpec::FAMILY_LLAMA) {
  v1::JobSpec job;
  job.set_name("small");
  v1::ModelSpec& model = *job.mutable_model();
  model.set_family(family);
  model.set_layers(2);
  model.set_hidden(64);
  model.set_heads(4);
  model.set_ffn(96);
  job.mutable_data()->add_source("corpus.txt");
  job.mutable_data()->set_sequence_length(128);
  job.mutable_train()->set_steps(10);
  job.mutable_train()->set_learning_rate(1e-3);
  return job;
}

v1::JobSpec Normal(v1::JobSpec job) {
  NormalizeJob(job);
  return job;
}

TEST(NormalizeJob, FillsEveryDefault) {
  const v1::JobSpec job = Normal(Minimal());
  EXPECT_EQ(job.model().kv_heads(), 4);
  EXPECT_EQ(job.model().head_dim(), 16);
  EXPECT_EQ(job.model().rope_theta(), 10000);
  EXPECT_EQ(job.model().norm_eps(), 1e-5);
  EXPECT_TRUE(job.model().causal());
  EXPECT_EQ(job.model().vocab(), 257);
  EXPECT_EQ(job.model().max_positions(), 128);
  EXPECT_EQ(job.data().tokenizer(), "bytes");
  EXPECT_EQ(job.data().seed(), 1);
  EXPECT_EQ(job.data().token_type(), v1::DataSpec::TOKEN_TYPE_UINT16);
  EXPECT_TRUE(job.data().has_document_mask());
  EXPECT_FALSE(job.data().document_mask());
  EXPECT_EQ(job.train().sequences_per_step(), 1);
  EXPECT_EQ(job.train().micro_batch(), 1);
  EXPECT_TRUE(job.train().has_warmup_steps());
  EXPECT_EQ(job.train().warmup_steps(), 0);
  EXPECT_EQ(job.train().schedule(), v1::TrainSpec::SCHEDULE_COSINE);
  EXPECT_TRUE(job.train().has_min_learning_rate());
  EXPECT_EQ(job.train().min_learning_rate(), 0);
  EXPECT_THAT(job.train().betas(), ElementsAre(0.9, 0.95));
  EXPECT_EQ(job.train().eps(), 1e-8);
  EXPECT_EQ(job.train().weight_decay(), 0.1);
  EXPECT_EQ(job.train().clip_norm(), 1.0);
  EXPECT_EQ(job.train().seed(), 1);
  EXPECT_EQ(job.parallel().degree(), 1);
  EXPECT_TRUE(job.parallel().has_head_groups());
  EXPECT_EQ(job.parallel().head_groups(), 0);
  EXPECT_TRUE(job.parallel().has_tile_rows());
  EXPECT_EQ(job.parallel().tile_rows(), 0);
  EXPECT_EQ(job.parallel().attention(), v1::ParallelSpec::ATTENTION_FLASH);
  EXPECT_EQ(job.parallel().recompute(), v1::ParallelSpec::RECOMPUTE_SELECTIVE);
}

TEST(NormalizeJob, TiesTheEmbeddingsByFamily) {
  EXPECT_TRUE(Normal(Minimal(v1::ModelSpec::FAMILY_GPT2)).model().tie_embeddings());
  const v1::JobSpec llama = Normal(Minimal());
  EXPECT_TRUE(llama.model().has_tie_embeddings());
  EXPECT_FALSE(llama.model().tie_embeddings());
}

TEST(NormalizeJob, LeavesWhatIsGiven) {
  v1::JobSpec job = Minimal();
  job.mutable_model()->set_kv_heads(2);
  job.mutable_model()->set_head_dim(8);
  job.mutable_model()->set_vocab(300);
  job.mutable_model()->set_max_positions(500);
  job.mutable_train()->set_weight_decay(0);
  job.mutable_train()->set_clip_norm(0);
  job.mutable_data()->set_seed(0);
  const v1::JobSpec normal = Normal(job);
  EXPECT_EQ(normal.model().kv_heads(), 2);
  EXPECT_EQ(normal.model().head_dim(), 8);
  EXPECT_EQ(normal.model().vocab(), 300);
  EXPECT_EQ(normal.model().max_positions(), 500);
  EXPECT_EQ(normal.train().weight_decay(), 0);
  EXPECT_EQ(normal.train().clip_norm(), 0);
  EXPECT_EQ(normal.data().seed(), 0);
}

TEST(NormalizeJob, TakesTokenFilesByTheirEnding) {
  v1::JobSpec job = Minimal();
  job.mutable_data()->clear_source();
  job.mutable_data()->add_source("a.bin");
  EXPECT_EQ(Normal(job).data().tokenizer(), "none");
  EXPECT_FALSE(Normal(job).model().has_vocab());
  job.mutable_data()->add_source("b.txt");
  EXPECT_EQ(Normal(job).data().tokenizer(), "bytes");
}

TEST(NormalizeJob, IsSafeForAnEmptyJob) {
  EXPECT_THAT(std::string(ValidateJob(Normal({})).message()),
              HasSubstr("model: missing, expected a section"));
}

TEST(ValidateJob, AcceptsANormalizedJob) {
  EXPECT_EQ(ValidateJob(Normal(Minimal())), absl::OkStatus());
  EXPECT_EQ(ValidateJob(Normal(Minimal(v1::ModelSpec::FAMILY_GPT2))), absl::OkStatus());
}

TEST(ValidateJob, RefusesMoreRanksThanCanBeCounted) {
  v1::JobSpec job = Normal(Minimal());
  job.mutable_parallel()->set_degree(65536);
  job.mutable_parallel()->set_rings(65536);
  job.mutable_train()->set_sequences_per_step(65536);
  EXPECT_EQ(std::string(ValidateJob(job).message()),
            "parallel.rings: found 65536 of degree 65536, expected at most 1000000 ranks in all");
  job.mutable_parallel()->set_rings(3);
  EXPECT_THAT(std::string(ValidateJob(job).message()), HasSubstr("a divisor of train.sequences_per_step"));
}

TEST(ValidateJob, RefusesAJobThatIsNotComplete) {
  v1::JobSpec job = Normal(Minimal());
  job.mutable_train()->clear_eps();
  EXPECT_EQ(ValidateJob(job), absl::InvalidArgumentError(
                                  "train.eps: missing, expected a complete job with a number larger than 0"));
  job = Normal(Minimal());
  job.mutable_train()->clear_betas();
  EXPECT_EQ(ValidateJob(job).message(),
            "train.betas: missing, expected a complete job with a list of 2 numbers of at "
            "least 0 and less than 1");
}

struct Case {
  std::string message;
  std::function<void(v1::JobSpec&)> change;  // of a normalized job
};

TEST(ValidateJob, NamesKeyFoundAndExpected) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(),
                   kInf = std::numeric_limits<double>::infinity();
  const std::vector<Case> cases = {
      {"model.family: found nothing, expected gpt2 or llama",
       [](v1::JobSpec& j) { j.mutable_model()->set_family(v1::ModelSpec::FAMILY_UNSPECIFIED); }},
      {"model.family: found the unknown value 77, expected gpt2 or llama",
       [](v1::JobSpec& j) { j.mutable_model()->set_family(static_cast<v1::ModelSpec::Family>(77)); }},
      {"train.schedule: found nothing, expected constant or cosine",
       [](v1::JobSpec& j) { j.mutable_train()->set_schedule(v1::TrainSpec::SCHEDULE_UNSPECIFIED); }},
      {"model.layers: found 0, expected an integer of at least 1 and at most 10000",
       [](v1::JobSpec& j) { j.mutable_model()->set_layers(0); }},
      {"model.kv_heads: found -4, expected an integer of at least 1 and at most 100000",
       [](v1::JobSpec& j) { j.mutable_model()->set_kv_heads(-4); }},
      {"train.learning_rate: found nan, expected a number larger than 0",
       [](v1::JobSpec& j) { j.mutable_train()->set_learning_rate(kNan); }},
      {"train.clip_norm: found inf, expected a number of at least 0",
       [](v1::JobSpec& j) { j.mutable_train()->set_clip_norm(kInf); }},
      {"train.betas: found a list of 3, expected a list of 2 numbers of at least 0 and less than 1",
       [](v1::JobSpec& j) { j.mutable_train()->add_betas(0.5); }},
      {"train.betas[1]: found nan, expected a number of at least 0 and less than 1",
       [](v1::JobSpec& j) { j.mutable_train()->set_betas(1, kNan); }},
      {"data.source: missing, expected a text or a list of texts: text files or folders (tokenizer bytes), "
       "or flat token "
       "files (*.bin)",
       [](v1::JobSpec& j) { j.mutable_data()->clear_source(); }},
      {"parallel.tile_rows: found -2, expected auto, none or an integer of at least 1",
       [](v1::JobSpec& j) { j.mutable_parallel()->set_tile_rows(-2); }},
      {"parallel.head_groups: found -1, expected auto or an integer of at least 1",
       [](v1::JobSpec& j) { j.mutable_parallel()->set_head_groups(-1); }},
      {"name: found \"\", expected 1 to 63 letters, digits, '-', '.' and '_', a letter or digit first",
       [](v1::JobSpec& j) { j.clear_name(); }},
      {"name: found \"../x\", expected 1 to 63 letters, digits, '-', '.' and '_', a letter or digit first",
       [](v1::JobSpec& j) { j.set_name("../x"); }},
      {"model.kv_heads: found 3, expected a divisor of model.heads (4)",
       [](v1::JobSpec& j) { j.mutable_model()->set_kv_heads(3); }},
      {"model.head_dim: found 15, expected an even number: rotary positions turn pairs",
       [](v1::JobSpec& j) { j.mutable_model()->set_head_dim(15); }},
      {"model.max_positions: found 127, expected at least data.sequence_length (128)",
       [](v1::JobSpec& j) {
         j.mutable_model()->set_family(v1::ModelSpec::FAMILY_GPT2);
         j.mutable_model()->set_max_positions(127);
       }},
      {"data.tokenizer: found words, expected bytes or none",
       [](v1::JobSpec& j) { j.mutable_data()->set_tokenizer("words"); }},
      {"data.source[0]: found corpus.txt, expected a *.bin file (data.tokenizer is none)",
       [](v1::JobSpec& j) { j.mutable_data()->set_tokenizer("none"); }},
      {"data.source[0]: found \"\", expected the path of a file or folder",
       [](v1::JobSpec& j) { j.mutable_data()->set_source(0, ""); }},
      {"model.vocab: found 256, expected at least 257, the size of tokenizer bytes",
       [](v1::JobSpec& j) { j.mutable_model()->set_vocab(256); }},
      {"data.end_of_document: found 10, expected 256, or no such key: tokenizer bytes has its own",
       [](v1::JobSpec& j) { j.mutable_data()->set_end_of_document(10); }},
      {"train.micro_batch: found 2, expected a divisor of train.sequences_per_step (3)",
       [](v1::JobSpec& j) {
         j.mutable_train()->set_sequences_per_step(3);
         j.mutable_train()->set_micro_batch(2);
       }},
      {"train.min_learning_rate: found 0.002, expected at most train.learning_rate (0.001)",
       [](v1::JobSpec& j) { j.mutable_train()->set_min_learning_rate(2e-3); }},
      {"data.sequence_length: found 2147483647, expected an integer of at most 2147483646",
       [](v1::JobSpec& j) {
         j.mutable_data()->set_sequence_length(kMost);
         j.mutable_model()->set_max_positions(kMost);
       }},
      {"model.heads: found 100000, expected heads x head_dim of at most 2147483647, not 10000000000",
       [](v1::JobSpec& j) {
         j.mutable_model()->set_heads(100 * 1000);
         j.mutable_model()->set_head_dim(100 * 1000);
       }},
      {"model: found 7.0008e+17 parameters, expected at most 5.1241e+17",
       [](v1::JobSpec& j) {
         j.mutable_model()->set_layers(10 * 1000);
         j.mutable_model()->set_ffn(10 * 1000 * 1000);
         j.mutable_model()->set_hidden(1000 * 1000);
         j.mutable_model()->set_heads(20 * 1000);
         j.mutable_model()->set_head_dim(1000);
       }},
      {"train.micro_batch: found 7.06436e+17 activations (micro_batch x sequence_length x layers x width), "
       "expected at "
       "most 5.76461e+17",
       [](v1::JobSpec& j) {
         j.mutable_model()->set_layers(10 * 1000);
         j.mutable_train()->set_sequences_per_step(kMost);
         j.mutable_train()->set_micro_batch(kMost);
       }},
      {"train.steps: found 5.90296e+20 tokens (steps x sequences_per_step x sequence_length), expected at "
       "most "
       "9.22337e+18",
       [](v1::JobSpec& j) {
         j.mutable_train()->set_steps(kMost);
         j.mutable_train()->set_sequences_per_step(kMost);
       }},
  };
  for (const Case& c : cases) {
    v1::JobSpec job = Normal(Minimal());
    c.change(job);
    EXPECT_EQ(ValidateJob(job), absl::InvalidArgumentError(c.message));
  }
}

TEST(ValidateJob, WantsTheEndOfDocumentWhereTokenFilesAreMasked) {
  v1::JobSpec job = Minimal();
  job.mutable_data()->set_source(0, "a.bin");
  job.mutable_data()->set_document_mask(true);
  job.mutable_model()->set_vocab(50257);
  EXPECT_EQ(
      ValidateJob(Normal(job)),
      absl::InvalidArgumentError("data.end_of_document: missing, expected the token that ends a document "
                                 "(data.document_mask is true)"));
  job.mutable_data()->set_end_of_document(50257);
  EXPECT_EQ(ValidateJob(Normal(job)).message(),
            "data.end_of_document: found 50257, expected a token below model.vocab (50257)");
  job.mutable_data()->set_end_of_document(50256);
  EXPECT_EQ(ValidateJob(Normal(job)), absl::OkStatus());
}

TEST(ValidateJob, AllowsALargeVocabularyWithSixteenBitTokens) {
  v1::JobSpec job = Minimal();
  job.mutable_data()->set_source(0, "a.bin");
  job.mutable_model()->set_vocab(100000);
  EXPECT_EQ(ValidateJob(Normal(job)), absl::OkStatus());
}

TEST(ValidateJob, RefusesFieldsOfAnotherVersion) {
  v1::JobSpec job = Normal(Minimal());
  job.GetReflection()->MutableUnknownFields(job.mutable_train())->AddVarint(4000, 1);
  EXPECT_EQ(ValidateJob(job),
            absl::InvalidArgumentError("train: found fields that this version does not know, expected "
                                       "a job made for this version"));
}

/// Sets every field below `message` to something arbitrary, extremes among it.
void Scramble(Message& message, std::mt19937& random) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const std::vector<int64_t> integers = {
      std::numeric_limits<int64_t>::min(), -1, 0, 1, 2, 3, 7, 64, 2147483647,
      std::numeric_limits<int64_t>::max()};
  const std::vector<double> numbers = {-1, 0, 0.5, 1, 1e300, -0.0, std::nan(""), HUGE_VAL, 5e-324};
  const std::vector<std::string> texts = {"", "bytes", "none", "a.bin", "a", std::string("\0", 1)};
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    if (random() % 8 != 0 && field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      continue;  // mostly left as it is, so that later rules are reached too
    }
    const bool list = field->is_repeated();
    const int64_t integer = integers[random() % integers.size()];
    const double number = numbers[random() % numbers.size()];
    const std::string& text = texts[random() % texts.size()];
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        Scramble(*reflection.MutableMessage(&message, field), random);
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        reflection.SetInt32(&message, field, static_cast<int32_t>(integer));
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        reflection.SetInt64(&message, field, integer);
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        list ? reflection.AddDouble(&message, field, number) : reflection.SetDouble(&message, field, number);
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        reflection.SetBool(&message, field, integer > 0);
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        list ? reflection.AddEnumValue(&message, field, static_cast<int>(random() % 4))
             : reflection.SetEnumValue(&message, field, static_cast<int>(random() % 4));
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        list ? reflection.AddString(&message, field, text) : reflection.SetString(&message, field, text);
        break;
      default:
        FAIL() << field->full_name() << " has a type that the reader does not know";
    }
  }
}

TEST(ValidateJob, AnswersForEveryMessageAndAcceptsOnlyUsableOnes) {
  std::mt19937 random(7);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    v1::JobSpec job = Minimal();
    Scramble(job, random);
    NormalizeJob(job);
    v1::JobSpec again = job;
    NormalizeJob(again);
    ASSERT_EQ(job.SerializeAsString(), again.SerializeAsString());
    if (ValidateJob(job).ok()) {
      ++accepted;
      ASSERT_EQ(job.model().heads() % job.model().kv_heads(), 0);
      ASSERT_GE(job.model().vocab(), job.data().tokenizer() == "bytes" ? 257 : 1);
      ASSERT_GT(job.train().learning_rate(), 0);
      ASSERT_EQ(job.train().betas_size(), 2);
    }
  }
  EXPECT_GT(accepted, 20);  // the rules are reached, and passed
}

TEST(JobSchema, DocumentsEveryKeyAndKnowsItsType) {
  std::function<void(const google::protobuf::Descriptor&)> visit =
      [&](const google::protobuf::Descriptor& section) {
        for (int i = 0; i < section.field_count(); ++i) {
          const FieldDescriptor& field = *section.field(i);
          EXPECT_FALSE(RuleOf(field).help().empty()) << field.full_name();
          EXPECT_FALSE(Expectation(field).empty()) << field.full_name();
          if (field.message_type() != nullptr) {
            visit(*field.message_type());
          } else if (!field.is_repeated()) {
            EXPECT_TRUE(field.has_presence() || RuleOf(field).required())
                << field.full_name() << " hides that it is absent";
          }
        }
      };
  visit(*v1::JobSpec::descriptor());
}

}  // namespace
}  // namespace metp
