#include "worker/model/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "worker/backend/backend.h"
#include "worker/model/parameters.h"
#include "worker/model/plan.h"

namespace metp {
namespace {

ModelConfig Config(bool llama) {
  ModelConfig c;
  c.llama = llama;
  c.layers = 2;
  c.h = 10;
  c.f = 7;
  c.V = 11;
  c.a = 6;
  c.g = 3;
  c.d = 2;
  c.max_positions = llama ? 0 : 5;
  c.tied = !llama;
  return c;
}

// Every matrix element stands on exactly one rank, every vector element on all, and no two share a place.
TEST(ParameterLayout, HoldsEveryElementExactlyOnce) {
  for (bool llama : {false, true}) {
    for (int p : {1, 2, 3, 4, 5, 12}) {
      for (int c : {1, 2, 3}) {
        std::map<std::string, std::vector<int>> held;
        for (int rank = 0; rank < p; ++rank) {
          const ParameterLayout layout(Config(llama), p, rank, c);
          std::vector<int> matrices(layout.matrix_size()), vectors(layout.vector_size());
          for (const Piece& piece : layout.pieces()) {
            auto& whole = held[piece.name];
            whole.resize(piece.rows * piece.cols);
            for (int64_t i = 0; i < piece.row.size(); ++i) {
              for (int64_t j = 0; j < piece.col.size(); ++j) {
                ++(piece.matrix ? matrices : vectors)
                      .at(piece.offset + i * piece.row_stride + j * piece.col_stride);
                if (piece.matrix || rank == 0)
                  ++whole.at((piece.row.begin + i) * piece.cols + piece.col.begin + j);
              }
            }
          }
          EXPECT_EQ(matrices, std::vector<int>(matrices.size(), 1))
              << "p " << p << " c " << c << " rank " << rank;
          EXPECT_EQ(vectors, std::vector<int>(vectors.size(), 1));
        }
        for (const auto& [name, counts] : held) EXPECT_EQ(counts, std::vector<int>(counts.size(), 1)) << name;
      }
    }
  }
}

TEST(InitializeWeights, GivesTheSameValuesForAnyDegreeAndHeadGroups) {
  const ModelConfig config = Config(true);
  std::map<std::string, std::map<std::pair<int64_t, int64_t>, float>> first;
  for (const auto& cut : {std::pair{1, 1}, {3, 2}, {4, 3}}) {
    const int p = cut.first, c = cut.second;
    for (int rank = 0; rank < p; ++rank) {
      MemoryLedger ledger;
      auto backend = MakeCpuBackend(1, ledger);
      Parameters parameters(*backend, ParameterLayout(config, p, rank, c));
      InitializeWeights(parameters, config, 7);
      parameters.Export(Parameters::kMasters, [&](const Piece& piece, int64_t i, int64_t j, float value) {
        const auto [at, inserted] = first[piece.name].try_emplace({i, j}, value);
        EXPECT_EQ(at->second, value) << piece.name << " " << i << " " << j << " p " << p;
        EXPECT_TRUE(inserted || p > 1);
      });
    }
  }
}

TEST(ParameterLayout, SlicesCutAnyRunOfTheArenaIntoRectanglesThatHaveItsElementsOnce) {
  for (const auto& [llama, p] : {std::pair{true, 1}, {false, 2}, {true, 3}, {false, 3}}) {
    const ParameterLayout layout(Config(llama), p, p - 1, 2);
    for (int parts : {1, 2, 7}) {
      std::vector<int> seen(layout.matrix_size(), 0);
      std::vector<int> vectors(layout.vector_size(), 0);
      for (int part = 0; part < parts; ++part) {
        const Range own = Part(layout.matrix_size(), parts, part);
        for (const ArenaSlice& place : layout.Slices(own, part == 0)) {
          // The piece that has this element says the same place.
          for (int64_t i = 0; i < place.slice.row.size(); ++i) {
            for (int64_t j = 0; j < place.slice.col.size(); ++j) {
              const int64_t at = place.offset + i * place.row_stride + j * place.col_stride;
              ++(place.matrix ? seen : vectors)[at];
              EXPECT_TRUE(!place.matrix || (own.begin <= at && at < own.end));
            }
          }
          const bool known =
              std::any_of(layout.pieces().begin(), layout.pieces().end(), [&](const Piece& piece) {
                return piece.name == place.slice.name && piece.matrix == place.matrix &&
                       piece.row.begin <= place.slice.row.begin && place.slice.row.end <= piece.row.end &&
                       piece.col.begin <= place.slice.col.begin && place.slice.col.end <= piece.col.end &&
                       piece.offset + (place.slice.row.begin - piece.row.begin) * piece.row_stride +
                               (place.slice.col.begin - piece.col.begin) * piece.col_stride ==
                           place.offset;
              });
          EXPECT_TRUE(known) << place.slice.name;
        }
      }
      EXPECT_EQ(seen, std::vector<int>(layout.matrix_size(), 1));
      EXPECT_EQ(vectors, std::vector<int>(layout.vector_size(), 1));
    }
  }
}

TEST(ResolvePlan, CountsMoreHeadGroupsThanKeyValueHeadsAsThatMany) {
  v1::JobSpec job;
  job.mutable_model()->set_kv_heads(4);
  job.mutable_parallel()->set_degree(2);
  job.mutable_parallel()->set_head_groups(9);
  job.mutable_parallel()->set_rings(1);
  job.mutable_parallel()->set_tile_rows(-1);
  const v1::Plan plan = ResolvePlan(job);
  EXPECT_EQ(plan.head_groups(), 4);
  EXPECT_EQ(plan.tile_rows(), 0);
  ASSERT_EQ(plan.notes_size(), 1);
  EXPECT_NE(plan.notes(0).find("9 count as 4"), std::string::npos);
}

TEST(ResolvePlan, MakesOneHeadGroupPerRankWhenAuto) {
  v1::JobSpec job;
  job.mutable_model()->set_kv_heads(8);
  job.mutable_parallel()->set_degree(3);
  job.mutable_parallel()->set_head_groups(0);
  EXPECT_EQ(ResolvePlan(job).head_groups(), 3);
}

}  // namespace
}  // namespace metp
